//! The earnings of packing against storing raw, and the further gain of a denser strategy.
//!
//! Work and bytes are the ledger's, measured on every block. The time of storing raw follows from the given or measured
//! link; joules and euros follow from the core time.

use breakeven::quoted::quoted;
use std::fmt::Write;

use breakeven::codec::Method;
use breakeven::decide::fields::Label;
use breakeven::decide::ledger::LedgerStats;
use breakeven::decide::{Class, Ledger, Profile};
use breakeven::model::{Keeping, Outcome};
use breakeven::stream::{Books, Goal, LinkBasis, Prospect, SeenLink, Summary};
use breakeven::units::{BytesPerSecond, Estimate, Euros, Joules, Seconds};
use breakeven_cli::text::{days as days_text, figures, percent, size};
use serde_json::{Value, json};

use super::choice::Kept;
use super::hint::Hint;
use crate::terms::{MEDIUM_ASSUMED, Terms};

/// The name and version of the JSON form. Fields are only added under the same one.
const SCHEMA: &str = "breakeven.ledger/1";

/// Factors of the uncompressed time that the denser strategies may take: Hirsch's S2 and S3.
const FACTORS: [(f64, &str); 2] = [(1.0, "free"), (1.5, "within:1.5")];

/// A stream that was packed.
pub struct Earned<'a> {
    name: &'a str,
    summary: &'a Summary,
    goal: Goal,
    terms: &'a Terms,
    kept: Kept,
    /// The cores' expected time for reading it once.
    decode: Seconds,
    ledger: Ledger,
    link: Option<SeenLink>,
    prospects: Vec<(&'static str, Prospect)>,
    last_percent: Option<Seconds>,
    /// Whether the stream is one long frame, in whole or for the most part.
    is_long: bool,
}

/// A strategy that would have stored less than the used one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Denser {
    /// The further bytes saved, as a share of the raw bytes.
    points: f64,
    /// Longer than it took.
    longer: Seconds,
    /// Days kept from which the bytes saved pay for the cores' work.
    days: Outcome,
}

/// The joules of a stream, and the assumed place of its bytes.
struct Energy {
    packed: Joules,
    raw: Joules,
    medium: String,
}

/// The books of a stream.
pub struct Booked {
    pub ledger: Ledger,
    /// Its link, if that is known.
    pub link: Option<SeenLink>,
    /// The books of the row of frames at its end, whose methods were picked. A long frame has none: one method is
    /// booked for all of it.
    pub row: Option<Books>,
    /// Core seconds of the last hundredth of the time.
    pub last_percent: Option<Seconds>,
}

impl<'a> Earned<'a> {
    /// Closes the books of a stream.
    pub fn of(
        (name, summary): (&'a str, &'a Summary),
        (goal, booked): (Goal, &Booked),
        (terms, kept): (&'a Terms, Kept),
        profile: &Profile,
    ) -> Earned<'a> {
        let prospects = booked.row.iter().flat_map(|books| {
            let prospect = |&(factor, name)| Some((name, books.within(factor)?));
            FACTORS.iter().filter_map(prospect)
        });
        let mut ledger = booked.ledger.clone();
        ledger.set_core_watts(terms.power.marginal_watts_per_core());
        let decode = ledger.accounts().filter_map(|(key, account)| {
            let (class, method) = key?;
            let estimate =
                profile.estimate(class, method, account.raw_bytes / account.blocks.max(1));
            Some(estimate.decode_seconds_per_byte.value.mean * account.raw_bytes as f64)
        });
        let decode = Seconds(decode.sum());
        Earned {
            name,
            summary,
            goal,
            terms,
            kept,
            decode,
            ledger,
            link: booked.link,
            prospects: prospects.collect(),
            last_percent: booked.last_percent,
            is_long: booked.row.is_none(),
        }
    }

    /// The time of storing raw, as exactly as the link is known.
    fn raw_seconds(&self) -> Option<Estimate> {
        let bytes = self.summary.raw_bytes as f64;
        Some(self.link?.seconds_per_byte.map(|seconds| seconds * bytes))
    }

    fn saved_bytes(&self) -> f64 {
        self.summary.raw_bytes as f64 - self.summary.stored_bytes as f64
    }

    /// Joules of the cores above idle, and joules that the machine saves because it idles less.
    fn joules(&self) -> (Joules, Option<Joules>) {
        let idle = self.terms.power.idle_watts();
        let saved = self.raw_seconds();
        let saved = saved.map(|raw| idle * (Seconds(raw.mean) - self.summary.drained_after));
        (self.ledger.total().energy, saved)
    }

    /// Euros for the cores, and for the bytes that need not be kept.
    fn euros(&self) -> (Euros, Euros) {
        let cores = self.terms.core_second() * self.ledger.total().encode.0;
        (
            cores,
            self.terms.keeping(self.saved_bytes(), self.kept.days),
        )
    }

    /// The energy of writing and reading the stream, and of the same with raw bytes; `None` where another goal decided.
    fn energy(&self) -> Option<Energy> {
        let Goal::Energy { prices, reads } = self.goal else {
            return None;
        };
        let byte = prices.per_byte_written.mean + reads * prices.per_byte_read.mean;
        let work = self.ledger.total().encode.0 + reads * self.decode.0;
        let raw = byte * self.summary.raw_bytes as f64;
        let packed = byte * self.summary.stored_bytes as f64 + prices.per_core_second.mean * work;
        let medium = match self.link {
            Some(link) if matches!(link.basis, LinkBasis::Given) => {
                format!("a link of {} MB/s", figures(link.speed.mb_per_second()))
            }
            _ => format!("{MEDIUM_ASSUMED}, assumed"),
        };
        Some(Energy {
            packed: Joules(packed),
            raw: Joules(raw),
            medium,
        })
    }

    fn denser(&self, prospect: &Prospect) -> Denser {
        let raw = self.summary.raw_bytes.max(1) as f64;
        let saved = self.summary.stored_bytes as f64 - prospect.stored_bytes;
        let points = saved / raw;
        let longer = prospect.seconds - self.summary.drained_after;
        // The cores' rent and energy for their further work (Hirsch 2017, section 5.2.2). The reader knows the cost of
        // waiting longer.
        let core = prospect.core - self.ledger.total().encode;
        let gigabytes = raw / 1e9;
        let keeping = Keeping {
            ratio: 1.0 / (1.0 - points.clamp(0.0, 1.0 - 1e-9)),
            codec_eur_per_gb: self.terms.core_second().0 * core.0 / gigabytes,
            store_eur_per_gb_year: self.terms.keeping(1e9, 365.0).0,
        };
        Denser {
            points,
            longer,
            days: keeping.redemption_days(),
        }
    }

    /// Describes the further saving of S2 and S3. The text is empty where the strategy was not S1, or too little was
    /// seen.
    pub fn prospects(&self) -> String {
        let mut text = String::new();
        if self.goal != Goal::Fastest || self.ledger.accounts().count() == 0 {
            return text;
        }
        for (name, prospect) in &self.prospects {
            let denser = self.denser(prospect);
            let _ = write!(text, "  --strategy {name} ");
            if denser.points < 5e-4 {
                text += "would save nothing more by the methods tried here\n";
                continue;
            }
            let (points, longer) = (100.0 * denser.points, denser.longer.0);
            let _ = write!(text, "would save {points:.1} points more");
            let _ = match longer > 0.0 {
                true => write!(text, " and take {} s longer", figures(longer)),
                false => write!(text, " in the same time"),
            };
            let _ = match denser.days {
                Outcome::Always => writeln!(text, "; it pays at once"),
                Outcome::Above(days) => {
                    let date = self.terms.date();
                    let days = days_text(&figures(days));
                    writeln!(text, "; it pays from {days} kept (prices of {date})")
                }
                _ => writeln!(text),
            };
        }
        text
    }

    /// Renders the ledger for people.
    pub fn text(&self) -> String {
        let (summary, total) = (self.summary, self.ledger.total());
        let mut text = format!("{}: earned against storing raw\n", quoted(self.name));
        let share = self.saved_bytes() / summary.raw_bytes.max(1) as f64;
        let _ = writeln!(
            text,
            "  bytes         {} instead of {}: {} saved",
            size(summary.stored_bytes as f64),
            size(summary.raw_bytes as f64),
            percent(share)
        );
        let seconds = figures(summary.drained_after.0);
        let _ = match (self.raw_seconds(), self.link) {
            (Some(raw), Some(link)) => writeln!(
                text,
                "  seconds       {seconds} instead of {}{}{}, over {} MB/s [{}]",
                match link.basis {
                    LinkBasis::NeverWaited => "at least ",
                    _ => "",
                },
                figures(raw.mean),
                match link.basis {
                    LinkBasis::Measured if raw.high.is_finite() =>
                        format!(" ({} to {})", figures(raw.low), figures(raw.high)),
                    _ => String::new(),
                },
                figures(mb_s(&link)),
                basis(link.basis)
            ),
            _ => writeln!(
                text,
                "  seconds       {seconds}; the time of storing raw was not measured"
            ),
        };
        let _ = writeln!(
            text,
            "  core seconds  {} spent on encoding",
            figures(total.encode.0)
        );
        if let Some(last) = self.last_percent {
            let _ = writeln!(
                text,
                "  last percent  {} core seconds fewer would do for a stream that takes 1 % longer",
                figures(last.0)
            );
        }
        let (spent, idled) = self.joules();
        let _ = writeln!(
            text,
            "  joules        {} spent by the cores{} [{}]",
            figures(spent.0),
            idled.map_or(String::new(), |idled| match idled.0 < 0.0 {
                true => format!(", {} idled away by taking longer", figures(-idled.0)),
                false => format!(", {} not idled away", figures(idled.0)),
            }),
            self.terms.power.source()
        );
        let (cores, kept) = self.euros();
        let _ = writeln!(
            text,
            "  money         {} EUR saved in {}, {} EUR spent on the cores: {} EUR net [prices of {}]",
            figures(kept.0),
            days_text(&figures(self.kept.days)),
            figures(cores.0),
            figures((kept - cores).0),
            self.terms.date()
        );
        text += &(self.energy_text() + &self.booked());
        text + &accounts(&self.ledger, self.is_long)
    }

    /// Describes the energy of writing and reading. The text is empty where another goal decided.
    fn energy_text(&self) -> String {
        self.energy().map_or(String::new(), |energy| {
            format!(
                "  energy        {} J to write it and read it {} times, {} J if it were stored raw: {} saved [{}; {}]\n",
                figures(energy.packed.0),
                figures(self.kept.reads),
                figures(energy.raw.0),
                percent(1.0 - energy.packed.0 / energy.raw.0),
                self.terms.power.source(),
                energy.medium,
            )
        })
    }

    /// Describes the earnings of the decisions, in their own unit.
    fn booked(&self) -> String {
        let LedgerStats {
            earnings,
            store_cost,
            ..
        } = self.ledger.stats();
        let unit = match self.goal {
            Goal::Money { .. } => "EUR",
            Goal::Energy { .. } => "J",
            ref goal => goal.unit(),
        };
        match earnings {
            // A long frame has one decision, and its earnings stand above.
            _ if self.is_long => String::new(),
            Some(earned) => format!(
                "  decisions     saved {} of {} {unit} on blocks that were compressed{}\n",
                figures(earned.saved_cost.mean),
                figures(store_cost),
                self.rest(earned.saved_cost.mean)
            ),
            None => "  decisions     too few blocks to say\n".to_string(),
        }
    }

    /// Describes the gap between the seconds that the decisions saved and all saved seconds.
    fn rest(&self, booked: f64) -> String {
        let Some(raw) = self.raw_seconds().filter(|_| self.goal == Goal::Fastest) else {
            return String::new();
        };
        let rest = raw.mean - self.summary.drained_after.0 - booked;
        match rest < 0.0 {
            true => format!("; starting and waiting took {}", figures(-rest)),
            false => format!("; {} more were saved beside them", figures(rest)),
        }
    }

    /// Describes the saving of another choice. Its pieces see no repeats beyond them, so the true saving may well be
    /// larger.
    pub fn hint(&self, hint: &Hint) -> String {
        let gigabytes = hint.saved.low * self.summary.stored_bytes as f64 / 1e9;
        let paid = self.terms.core_second() * hint.core.0;
        let days = paid.0 / self.terms.keeping(gigabytes * 1e9, 1.0).0;
        format!(
            "  {} would save {} of that or more, for about {} core seconds; it pays from {} kept (prices of {})\n",
            hint.choice,
            percent(hint.saved.low),
            figures(hint.core.0),
            days_text(&figures(days)),
            self.terms.date()
        )
    }

    /// Renders the same facts as JSON.
    pub fn json(&self) -> Value {
        let label = |name, value: &str| (name, value.to_string());
        let unit = match self.goal {
            Goal::Money { .. } => "euros",
            ref goal => goal.unit(),
        };
        let labels: [Label; 2] = [label("file", self.name), label("cost_unit", unit)];
        let (joules, idled) = self.joules();
        let (cores, kept) = self.euros();
        let prospects = self.prospects.iter().map(|(name, prospect)| {
            let denser = self.denser(prospect);
            json!({
                "strategy": name,
                "stored_bytes": prospect.stored_bytes,
                "saved_points": 100.0 * denser.points,
                "seconds": prospect.seconds.0,
                "core_seconds": prospect.core.0,
                "pays_from_days": match denser.days {
                    Outcome::Above(days) => Some(days),
                    Outcome::Always => Some(0.0),
                    _ => None,
                },
            })
        });
        let books = self.ledger.json(&labels);
        json!({
            "schema": SCHEMA,
            "file": self.name,
            "raw_bytes": self.summary.raw_bytes,
            "stored_bytes": self.summary.stored_bytes,
            "seconds": self.summary.drained_after.0,
            "seconds_raw": self.raw_seconds().map(|it| it.mean),
            "seconds_raw_low": self.raw_seconds().map(|it| it.low),
            "seconds_raw_high": self.raw_seconds().map(|it| it.high),
            "link": self.link.map(|link| json!({
                "mb_s": mb_s(&link),
                "source": basis(link.basis),
            })),
            "core_seconds": self.ledger.total().encode.0,
            "last_percent_core_seconds": self.last_percent.map(|it| it.0),
            "joules": {
                "cores": joules.0,
                "not_idled_away": idled.map(|it| it.0),
                "source": self.terms.power.source().to_string(),
            },
            "energy": self.energy().map(|energy| json!({
                "packed_joules": energy.packed.0,
                "raw_joules": energy.raw.0,
                "reads": self.kept.reads,
                "medium": energy.medium,
                "source": self.terms.power.source().to_string(),
            })),
            "euros": {
                "cores": cores.0,
                "kept": kept.0,
                "days": self.kept.days,
                "prices": self.terms.date(),
            },
            "prospects": prospects.collect::<Vec<_>>(),
            "ledger": books["ledger"],
            "accounts": books["accounts"],
        })
    }
}

/// Returns the speed that raw bytes are counted by.
fn mb_s(link: &SeenLink) -> f64 {
    BytesPerSecond(1.0 / link.seconds_per_byte.mean).mb_per_second()
}

fn basis(basis: LinkBasis) -> &'static str {
    match basis {
        LinkBasis::Given => "given",
        LinkBasis::Measured => "measured",
        LinkBasis::NeverWaited => "as it took writes; it was never behind",
    }
}

/// A line for each class and method. Expectations are known for blocks, but not for long frames.
fn accounts(ledger: &Ledger, is_long: bool) -> String {
    let mut text = format!(
        "  {:<18} {:<11} {:>7} {:>9} {:>7} {:>9} {:>9} {:>9}\n",
        "class", "method", "blocks", "raw", "ratio", "expected", "core MB/s", "expected"
    );
    for (key, account) in ledger.accounts() {
        let (class, method) = match key {
            Some((class, method)) => name(class, method),
            None => ("other".to_string(), "other".to_string()),
        };
        let raw = account.raw_bytes as f64;
        let speed = |seconds: Seconds| match seconds.0 > 0.0 {
            true => figures(raw / 1e6 / seconds.0),
            false => "-".to_string(),
        };
        let expected = |told: String| if is_long { "-".to_string() } else { told };
        let _ = writeln!(
            text,
            "  {class:<18} {method:<11} {:>7} {:>9} {:>7} {:>9} {:>9} {:>9}",
            account.blocks,
            size(raw),
            account.ratio().map_or("-".to_string(), figures),
            expected(figures(raw / account.expected_stored_bytes.max(1.0))),
            speed(account.encode),
            expected(speed(account.expected_encode))
        );
    }
    text
}

fn name(class: Class, method: Method) -> (String, String) {
    (class.to_string(), method.to_string())
}
