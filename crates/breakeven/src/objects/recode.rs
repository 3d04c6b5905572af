//! Items on the move: their values are encoded as their class is now, from any earlier form.
//!
//! A value is stored raw again when its decodings have cost as much as holding it raw would have. Nothing counts them.
//! Each decoding causes it with a chance of one in so many, which has the same effect. A skier who rents draws the day
//! on which to buy in the same way (Karlin et al. 1990).

use std::sync::Arc;

use super::coding::ClassPlan;
use super::form::{self, Bench, Form, HEADER_BYTES, on_bench};
use super::item::{Header, Stored};
use super::log::{Content, Queue};
use super::shard::{Found, Key, Shard, is_encoded};
use super::space::Purpose;
use crate::codec::Method;
use crate::decide::Written;
use crate::decide::holdout::{self, Holdout, Measured};
use crate::units::{Joules, Seconds};

/// One in so many of the values that leave the fresh queue is offered as a sample, where the class is known.
const OFFERED_ONE_IN: u32 = 8;

/// The plan for a value.
enum Wanted {
    /// The value stays unchanged: nothing is known of its class, or it is never encoded.
    AsIs,
    Raw,
    Form(Arc<Form>),
}

/// Its outcome.
struct Recoded<'a> {
    form: Option<Arc<Form>>,
    bytes: &'a [u8],
    is_fresh: bool,
    is_refused: bool,
}

impl Shard {
    /// Takes over new decisions on classes.
    pub fn follow(&mut self) {
        let Some(coding) = &self.coding else { return };
        if coding.version() != self.plan.version {
            self.plan = coding.plan();
        }
    }

    /// Moves an item to the end of a queue, and encodes its value as its class is now. False if there is no slab.
    pub fn move_to(&mut self, found: Found, queue: Queue, frequency: u8, now: u32) -> bool {
        let key_bytes = usize::from(found.header.key_bytes);
        let bytes = key_bytes + found.header.stored.inline_bytes();
        let mut item = std::mem::take(&mut self.moving);
        item.clear();
        item.extend_from_slice(self.log.bytes(found.place.segment, found.key_at, bytes));
        let (key, inline) = item.split_at(key_bytes);
        let raw_bytes = found.header.stored.raw_bytes();
        let was = self.form_of(&found).cloned();
        let is_short =
            form::may_encode(raw_bytes) && !matches!(found.header.stored, Stored::Chained { .. });
        let class = (self.plan.prefixes.class(key, raw_bytes)).filter(|_| is_short);
        let plan = class.and_then(|class| self.plan.of(class));
        let wanted = match plan.map(|plan| &plan.form) {
            _ if !is_short => Wanted::AsIs,
            None => Wanted::AsIs,
            Some(None) => Wanted::Raw,
            Some(Some(form)) => Wanted::Form(Arc::clone(form)),
        };
        let is_first = self.log.segment(found.place.segment).queue == Queue::Fresh;
        if is_first && is_short && was.is_none() {
            self.offer(key, inline, plan.is_some());
        }
        let placed = on_bench(|bench| {
            let mut value = std::mem::take(&mut bench.value);
            let recoded = recode(bench, &was, inline, raw_bytes, wanted, &mut value);
            let mut header = found.header;
            if !matches!(header.stored, Stored::Chained { .. }) {
                header.stored = stored(&recoded, raw_bytes);
            }
            let content = Content {
                header: &header,
                key,
                stored: [recoded.bytes, &[]],
                form: recoded.form.as_ref(),
            };
            let place = self.log.append((queue, Purpose::Moved), content, now);
            let outcome = (place, header, recoded.is_fresh, recoded.is_refused);
            bench.value = value;
            outcome
        });
        let (place, header, is_fresh, is_refused) = placed;
        if let Some(place) = place {
            self.index.redirect(found.spot, place, frequency);
            self.stats.moved += 1;
            self.stats.encoded_items += is_encoded(&header);
            self.stats.encoded_items -= is_encoded(&found.header);
            self.stats.bytes += self.log.item_bytes(place) as u64;
            self.stats.bytes -= self.log.forget(found.place.segment, &found.header) as u64;
            if let Some(class) = class {
                let counts = self.books.of(class);
                counts.demoted += u64::from(is_first);
                counts.refused += u64::from(is_refused);
                if is_fresh {
                    self.book_encoded(class, header.stored);
                }
            }
            if is_first && was.is_none() {
                self.sample(class, key, inline, header.stored);
            }
        }
        self.moving = item;
        place.is_some()
    }

    fn book_encoded(&mut self, class: u16, stored: Stored) {
        let counts = self.books.of(class);
        counts.encoded += 1;
        counts.raw_bytes += stored.raw_bytes() as u64;
        counts.stored_bytes += (stored.inline_bytes() + HEADER_BYTES) as u64;
        self.stats.encoded += 1;
    }

    /// Shows a value to the learner of its class, if it is its turn.
    fn offer(&mut self, key: &[u8], value: &[u8], is_known: bool) {
        self.offers_in = self.offers_in.saturating_sub(1);
        if self.offers_in > 0 {
            return;
        }
        if let Some(coding) = &self.coding {
            coding.offer(key, value);
            // Where nothing is encoded, only some segments come here.
            let is_some_of_them = is_known && !self.plan.is_raw();
            self.offers_in = if is_some_of_them { OFFERED_ONE_IN } else { 1 };
        }
    }

    /// Enters a value that left the fresh queue in the ledger, with the cost of both choices if it is drawn.
    fn sample(&mut self, class: Option<u16>, key: &[u8], value: &[u8], stored: Stored) {
        let plan = Arc::clone(&self.plan);
        let Some((class, plan)) = class.and_then(|class| Some((class, plan.of(class)?))) else {
            return;
        };
        let decision = plan.decision_for(value.len());
        let is_drawn = Holdout::default().draws(self.hash.of(key));
        let measured = match (is_drawn, plan.form.as_ref().or(plan.alternative.as_ref())) {
            (true, Some(form)) => Some(form::time(form, std::iter::once(value))),
            _ => None,
        };
        let encode = match (decision.method, &measured) {
            (Method::STORE, _) => Seconds(0.0),
            (_, Some(measured)) => measured.encode,
            _ => Seconds(decision.quantities.encode_core_seconds.mean),
        };
        let stored_bytes = match stored {
            Stored::Encoded { bytes, .. } => bytes as usize + HEADER_BYTES,
            other => other.raw_bytes(),
        };
        let written = Written {
            stored_bytes: stored_bytes as u64,
            encode,
            energy: Joules(0.0),
        };
        let sampled = measured.map(|measured| {
            let found = Measured {
                stored_bytes: measured.stored_bytes as u64,
                encode: measured.encode,
                decode: measured.decode,
            };
            let life = ClassPlan::life_of(plan, value.len());
            holdout::price(&decision, &life, &plan.prices, &found)
        });
        self.books
            .wrote(class, &decision, &written, sampled.as_ref());
    }

    /// Counts a decoding; stores the value raw again if that is drawn.
    pub fn after_decoding(&mut self, key: Key<'_>, found: Found, value: &[u8], now: u32) {
        self.stats.decoded += 1;
        let form = self.form_of(&found).expect("an encoded item has a form");
        let class = form.class;
        self.books.of(class).decoded += 1;
        let has_fresh = self.has_more_fresh_than_due();
        let one_in = self.plan.of(class).map(|plan| match has_fresh {
            true => plan.promote_one_in_sooner,
            false => plan.promote_one_in,
        });
        if !one_in.is_some_and(|one_in| self.draw(one_in)) {
            return;
        }
        let header = Header {
            stored: Stored::Raw {
                bytes: value.len() as u32,
            },
            ..self.log.header(found.place).0
        };
        let content = Content {
            header: &header,
            key: key.bytes,
            stored: [value, &[]],
            form: None,
        };
        // Without room it stays unchanged.
        let Some(place) = self.log.append((Queue::Hot, Purpose::New), content, now) else {
            return;
        };
        let frequency = self.index.frequency(found.spot);
        self.index.redirect(found.spot, place, frequency);
        self.stats.promoted += 1;
        self.books.of(class).promoted += 1;
        self.stats.encoded_items -= 1;
        self.stats.bytes += self.log.item_bytes(place) as u64;
        self.stats.bytes -= self.log.forget(found.place.segment, &found.header) as u64;
    }
}

/// Brings a value from its present form to the wanted one.
fn recode<'a>(
    bench: &'a mut Bench,
    was: &Option<Arc<Form>>,
    inline: &'a [u8],
    raw_bytes: usize,
    wanted: Wanted,
    value: &'a mut Vec<u8>,
) -> Recoded<'a> {
    let as_is = |form: Option<Arc<Form>>| Recoded {
        form,
        bytes: inline,
        is_fresh: false,
        is_refused: false,
    };
    let wanted = match wanted {
        Wanted::AsIs => return as_is(was.clone()),
        Wanted::Raw => None,
        Wanted::Form(form) => Some(form),
    };
    let raw: &'a [u8] = match was {
        Some(was) if was.is(wanted.as_ref()) => return as_is(Some(Arc::clone(was))),
        Some(was) => {
            value.clear();
            bench.decode(was, inline, raw_bytes, value);
            value
        }
        None => inline,
    };
    let encoded = wanted.map(|form| (bench.encode(&form, raw), form));
    match encoded {
        Some((Some(bytes), form)) => Recoded {
            form: Some(form),
            bytes,
            is_fresh: true,
            is_refused: false,
        },
        other => Recoded {
            form: None,
            bytes: raw,
            is_fresh: false,
            is_refused: other.is_some(),
        },
    }
}

fn stored(recoded: &Recoded<'_>, raw_bytes: usize) -> Stored {
    match recoded.form {
        None => Stored::Raw {
            bytes: raw_bytes as u32,
        },
        Some(_) => Stored::Encoded {
            bytes: recoded.bytes.len() as u32,
            raw_bytes: raw_bytes as u32,
            // The segment gives it its number.
            form: 0,
        },
    }
}
