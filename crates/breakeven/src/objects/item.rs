//! The bytes of one item in the log. They exist in memory only and are never written to a file.
//!
//! ```text
//! 0  u8   key length, 1 to 250
//! 1  u8   bits: FLAGS 1, WIDE_CAS 2, EXPIRES 4, LONG 8, ENCODED 16, FETCHED 32, STALE 64, TOKEN 128
//! 2  u16  last access: seconds since the segment was opened; above 32,767 in steps of 64 seconds; 65,535 in an item
//!         that was removed or overwritten
//! 4  u16  CAS: what it is above the segment's base
//! 6  u16  stored length
//!    u32  if LONG: the stored length, bit 31 set where it is a raw length whose slabs are chained
//!    u32  if FLAGS: client flags
//!    u32  if EXPIRES: the second from which the item is gone
//!    u64  if WIDE_CAS: the CAS
//!    u8   if ENCODED: the form, by its place in the segment's list; then the raw length, u32 if LONG, else u16
//!    key, stored bytes (where chained: u32 chain, then what does not fill a slab)
//! ```
//!
//! That is 8 bytes beside key and value. An item that expires takes 4 more, one that is encoded 3 more, and one with
//! client flags that are not 0 4 more.

/// The longest key of the protocol.
pub const KEY_BYTES_MAX: usize = 250;

pub(super) const FETCHED: u8 = 32;
pub(super) const STALE: u8 = 64;
pub(super) const TOKEN: u8 = 128;

const FLAGS: u8 = 1;
const WIDE_CAS: u8 = 2;
const EXPIRES: u8 = 4;
const LONG: u8 = 8;
const ENCODED: u8 = 16;
/// The flags that an item keeps when it moves.
const KEPT: u8 = FETCHED | STALE | TOKEN;

const CHAINED: u32 = 1 << 31;
const FIXED_BYTES: usize = 8;
/// The longest header, with all optional fields.
pub(super) const HEADER_BYTES_MAX: usize = FIXED_BYTES + 4 + 4 + 4 + 8 + 5;
/// The mark in place of the last access of a dead item. An item that moved elsewhere may lack it.
const DEAD: [u8; 2] = u16::MAX.to_le_bytes();
/// Seconds of access that are stored exactly.
const ACCESS_EXACT: u32 = 1 << 15;
const ACCESS_STEP: u32 = 64;

/// The relation of the stored bytes to the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// They are the value.
    Raw { bytes: u32 },
    /// The value is this long, and whole slabs of it lie in a chain.
    Chained { raw_bytes: u32, inline_bytes: u32 },
    /// They are decoded by a form of the segment.
    Encoded {
        bytes: u32,
        raw_bytes: u32,
        form: u8,
    },
}

impl Stored {
    /// Bytes of the value.
    pub fn raw_bytes(self) -> usize {
        match self {
            Stored::Raw { bytes } => bytes as usize,
            Stored::Chained { raw_bytes, .. } | Stored::Encoded { raw_bytes, .. } => {
                raw_bytes as usize
            }
        }
    }

    /// Bytes in the segment behind the key.
    pub fn inline_bytes(self) -> usize {
        match self {
            Stored::Raw { bytes } | Stored::Encoded { bytes, .. } => bytes as usize,
            Stored::Chained { inline_bytes, .. } => inline_bytes as usize,
        }
    }
}

/// The header before the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub key_bytes: u8,
    /// Of [`FETCHED`], [`STALE`], [`TOKEN`].
    pub bits: u8,
    /// The second of the last access.
    pub access: u32,
    pub cas: u64,
    pub flags: u32,
    /// The second from which the item is gone; 0 for never.
    pub expires: u32,
    pub stored: Stored,
}

/// The base values of a segment's items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub cas: u64,
    /// The CAS values of the shard lie 2 to this power apart.
    pub cas_shift: u32,
    pub opened: u32,
}

impl Header {
    pub fn is_expired(&self, now: u32) -> bool {
        self.expires != 0 && self.expires <= now
    }

    /// Steps from the base to the CAS; `None` where the CAS is not of this shard, or is too far.
    fn cas_steps(&self, base: Base) -> Option<u16> {
        let apart = self.cas.checked_sub(base.cas)?;
        let steps = apart >> base.cas_shift;
        u16::try_from(steps)
            .ok()
            .filter(|_| steps << base.cas_shift == apart)
    }

    fn all_bits(&self, base: Base) -> u8 {
        let is_long = match self.stored {
            Stored::Raw { bytes } => bytes > u32::from(u16::MAX),
            Stored::Chained { .. } => true,
            Stored::Encoded { raw_bytes, .. } => raw_bytes > u32::from(u16::MAX),
        };
        let is_encoded = matches!(self.stored, Stored::Encoded { .. });
        let when = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        (self.bits & KEPT)
            | when(self.flags != 0, FLAGS)
            | when(self.expires != 0, EXPIRES)
            | when(self.cas_steps(base).is_none(), WIDE_CAS)
            | when(is_long, LONG)
            | when(is_encoded, ENCODED)
    }

    /// Bytes of the whole item in a segment of this base.
    pub fn item_bytes(&self, base: Base) -> usize {
        header_bytes(self.all_bits(base)) + usize::from(self.key_bytes) + self.stored.inline_bytes()
    }

    /// Writes the header and returns its length.
    pub fn write(&self, base: Base, slab_bytes: usize, target: &mut [u8]) -> usize {
        let bits = self.all_bits(base);
        target[0] = self.key_bytes;
        target[1] = bits;
        target[2..4].copy_from_slice(&access_code(self.access, base.opened).to_le_bytes());
        let steps = self.cas_steps(base).unwrap_or(0);
        target[4..6].copy_from_slice(&steps.to_le_bytes());
        target[6..8].copy_from_slice(&(self.stored.inline_bytes() as u16).to_le_bytes());
        let mut at = FIXED_BYTES;
        let mut put = |bytes: &[u8]| {
            target[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if bits & LONG != 0 {
            let long = match self.stored {
                Stored::Raw { bytes } | Stored::Encoded { bytes, .. } => bytes,
                Stored::Chained { raw_bytes, .. } => {
                    assert_eq!(chained(raw_bytes, slab_bytes), self.stored);
                    raw_bytes | CHAINED
                }
            };
            put(&long.to_le_bytes());
        }
        if bits & FLAGS != 0 {
            put(&self.flags.to_le_bytes());
        }
        if bits & EXPIRES != 0 {
            put(&self.expires.to_le_bytes());
        }
        if bits & WIDE_CAS != 0 {
            put(&self.cas.to_le_bytes());
        }
        if let Stored::Encoded {
            raw_bytes, form, ..
        } = self.stored
        {
            put(&[form]);
            match bits & LONG != 0 {
                true => put(&raw_bytes.to_le_bytes()),
                false => put(&(raw_bytes as u16).to_le_bytes()),
            }
        }
        at
    }

    /// Reads the header of the item that starts here, and returns its length.
    pub fn read(base: Base, slab_bytes: usize, item: &[u8]) -> (Header, usize) {
        let bits = item[1];
        let u16_at = |at: usize| u16::from_le_bytes([item[at], item[at + 1]]);
        let mut at = FIXED_BYTES;
        let mut u32_next = |is_there: bool| {
            if !is_there {
                return 0;
            }
            at += 4;
            u32::from_le_bytes([item[at - 4], item[at - 3], item[at - 2], item[at - 1]])
        };
        let is_long = bits & LONG != 0;
        let long = u32_next(is_long);
        let flags = u32_next(bits & FLAGS != 0);
        let expires = u32_next(bits & EXPIRES != 0);
        let cas = if bits & WIDE_CAS != 0 {
            let low = u64::from(u32_next(true));
            low | u64::from(u32_next(true)) << 32
        } else {
            base.cas + (u64::from(u16_at(4)) << base.cas_shift)
        };
        let bytes = if is_long { long } else { u16_at(6).into() };
        let stored = if bits & ENCODED != 0 {
            at += 1;
            let form = item[at - 1];
            let raw_bytes = if is_long {
                at += 4;
                u32::from_le_bytes([item[at - 4], item[at - 3], item[at - 2], item[at - 1]])
            } else {
                at += 2;
                u16_at(at - 2).into()
            };
            Stored::Encoded {
                bytes,
                raw_bytes,
                form,
            }
        } else if bytes & CHAINED != 0 {
            chained(bytes & !CHAINED, slab_bytes)
        } else {
            Stored::Raw { bytes }
        };
        let header = Header {
            key_bytes: item[0],
            bits: bits & KEPT,
            access: access_second(u16_at(2), base.opened),
            cas,
            flags,
            expires,
            stored,
        };
        (header, at)
    }
}

/// Sets bits of an item, and the second of its access.
pub(super) fn mark(item: &mut [u8], bits: u8, access: u32, opened: u32) {
    item[1] |= bits & KEPT;
    item[2..4].copy_from_slice(&access_code(access, opened).to_le_bytes());
}

/// Returns how a value of this length is chained: whole slabs, and a short rest with the key.
pub(super) fn chained(raw_bytes: u32, slab_bytes: usize) -> Stored {
    let tail = raw_bytes as usize % slab_bytes;
    // A longer rest has a slab to itself, or it would close a mostly empty segment.
    let tail = if tail > slab_bytes / 4 { 0 } else { tail };
    Stored::Chained {
        raw_bytes,
        inline_bytes: 4 + tail as u32,
    }
}

fn header_bytes(bits: u8) -> usize {
    let has = |bit: u8| usize::from(bits & bit != 0);
    let encoded = has(ENCODED) * (3 + 2 * has(LONG));
    FIXED_BYTES + 4 * (has(LONG) + has(FLAGS) + has(EXPIRES)) + 8 * has(WIDE_CAS) + encoded
}

/// Marks an item as dead, so that a walk over it need not ask the index.
pub(super) fn mark_dead(item: &mut [u8]) {
    item[2..4].copy_from_slice(&DEAD);
}

/// Whether an item is marked as dead.
pub(super) fn is_dead(item: &[u8]) -> bool {
    item[2..4] == DEAD
}

fn access_code(access: u32, opened: u32) -> u16 {
    let seconds = access.saturating_sub(opened);
    match seconds < ACCESS_EXACT {
        true => seconds as u16,
        false => {
            let steps = (seconds - ACCESS_EXACT) / ACCESS_STEP;
            (ACCESS_EXACT + steps.min(ACCESS_EXACT - 2)) as u16
        }
    }
}

fn access_second(code: u16, opened: u32) -> u32 {
    let code = u32::from(code);
    let seconds = match code < ACCESS_EXACT {
        true => code,
        false => ACCESS_EXACT + (code - ACCESS_EXACT) * ACCESS_STEP,
    };
    opened.saturating_add(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_they_were_written() {
        let mut random = crate::testing::seeded("item headers", 20_200_301);
        let slab_bytes = 1 << 15;
        let mut tried = 0;
        for _ in 0..20_000 {
            let base = Base {
                cas: random.u64(0..1 << 40),
                cas_shift: random.u32(0..13),
                opened: random.u32(0..1 << 20),
            };
            let (raw_bits, cas_bits) = (random.u32(1..20), random.u32(1..63));
            let raw_bytes = random.u32(0..1 << raw_bits);
            let stored = match random.u8(0..3) {
                0 => Stored::Raw { bytes: raw_bytes },
                1 => chained(raw_bytes + slab_bytes as u32, slab_bytes),
                _ => Stored::Encoded {
                    bytes: raw_bytes / 2,
                    raw_bytes,
                    form: random.u8(..),
                },
            };
            let header = Header {
                key_bytes: random.u8(1..=250),
                bits: random.u8(..) & KEPT,
                access: base.opened + random.u32(0..ACCESS_EXACT),
                cas: random.u64(0..1 << cas_bits),
                flags: random.u32(0..3),
                expires: random.u32(0..3),
                stored,
            };
            let mut bytes = [0xA5; HEADER_BYTES_MAX];
            let length = header.write(base, slab_bytes, &mut bytes);
            let item_bytes = length + usize::from(header.key_bytes) + stored.inline_bytes();
            assert_eq!(header.item_bytes(base), item_bytes, "{header:?}");
            assert_eq!(Header::read(base, slab_bytes, &bytes), (header, length));
            tried += 1;
        }
        println!("item headers: {tried} tried");
        assert!(tried >= 20_000);
    }

    #[test]
    fn an_access_long_ago_is_told_in_steps() {
        for seconds in [0, 1, 32_767, 32_768, 100_000, 2_000_000, u32::MAX] {
            let told = access_second(access_code(seconds, 5), 5);
            let last = 5 + ACCESS_EXACT + (ACCESS_EXACT - 2) * ACCESS_STEP;
            let seconds = seconds.max(5);
            assert!(
                told <= seconds && (seconds - told < ACCESS_STEP || told == last),
                "{seconds}: {told}"
            );
        }
    }
}
