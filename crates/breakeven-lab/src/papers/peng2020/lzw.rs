//! LZW as `compress` has it (Welch 1984), with codes of 9 to 16 bits, without a header and without clearing the table.
//! It compresses values one by one.
//!
//! It stands here for the figures alone. Codes are written as they are read, the lowest bit first.

use std::collections::HashMap;

/// Codes have at least and at most so many bits.
const BITS: std::ops::RangeInclusive<u32> = 9..=16;

/// Returns the bits of a code when so many are known.
fn bits(known: usize) -> u32 {
    let needed = usize::BITS - known.leading_zeros();
    needed.clamp(*BITS.start(), *BITS.end())
}

/// Compresses bytes.
pub fn encode(source: &[u8]) -> Vec<u8> {
    let mut table: HashMap<(u32, u8), u32> = HashMap::new();
    let (mut stored, mut held, mut held_bits) = (Vec::new(), 0_u64, 0);
    let mut put = |code: u32, known: usize| {
        held |= u64::from(code) << held_bits;
        held_bits += bits(known);
        while held_bits >= 8 {
            stored.push(held as u8);
            held >>= 8;
            held_bits -= 8;
        }
        (held, held_bits)
    };
    let Some((first, rest)) = source.split_first() else {
        return Vec::new();
    };
    let mut prefix = u32::from(*first);
    let mut known = 256;
    for byte in rest {
        if let Some(code) = table.get(&(prefix, *byte)) {
            prefix = *code;
            continue;
        }
        put(prefix, known);
        if known < 1 << BITS.end() {
            table.insert((prefix, *byte), known as u32);
            known += 1;
        }
        prefix = u32::from(*byte);
    }
    let (held, held_bits) = put(prefix, known);
    if held_bits > 0 {
        stored.push(held as u8);
    }
    stored
}

/// Decodes so many bytes; `None` if they are not the stored ones.
pub fn decode(stored: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
    let mut table: Vec<(usize, usize)> = Vec::new();
    let mut target: Vec<u8> = Vec::with_capacity(raw_bytes);
    let (mut bytes, mut held, mut held_bits) = (stored.iter(), 0_u64, 0);
    let mut previous: Option<(usize, usize)> = None;
    while target.len() < raw_bytes {
        // The encoder knew one more than the decoder so far, but for the first code and when its table was full.
        let known = 256 + table.len() + usize::from(previous.is_some());
        let wanted = bits(known.min(1 << BITS.end()));
        while held_bits < wanted {
            held |= u64::from(*bytes.next()?) << held_bits;
            held_bits += 8;
        }
        let code = (held & ((1 << wanted) - 1)) as usize;
        held >>= wanted;
        held_bits -= wanted;
        let start = target.len();
        match (code.checked_sub(256), previous) {
            (None, _) => target.push(code as u8),
            (Some(at), Some((from, length))) if at == table.len() => {
                target.extend_from_within(from..from + length);
                target.push(target[start]);
            }
            (Some(at), _) => {
                let (from, length) = *table.get(at)?;
                target.extend_from_within(from..from + length);
            }
        }
        if let Some((from, length)) = previous.filter(|_| known <= 1 << BITS.end()) {
            // The entry known before, and the first byte of this one, which follows it.
            table.push((from, length + 1));
        }
        previous = Some((start, target.len() - start));
    }
    (target.len() == raw_bytes).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Kind, Random};

    #[test]
    fn what_was_encoded_comes_back() {
        let check = |source: &[u8]| {
            let stored = encode(source);
            let back = decode(&stored, source.len());
            assert!(back.as_deref() == Some(source), "{} bytes", source.len());
            stored.len()
        };
        check(b"");
        check(b"a");
        check(b"aaaaaaaaaaaaaaaaaaaa");
        // Welch's own example of a code that the decoder does not know yet.
        check(b"ababababababababab");
        for kind in [Kind::Text, Kind::Noise, Kind::Rows] {
            for length in [300, 70_000, 2_000_000] {
                check(&kind.generate(length, 7));
            }
        }
        let text = Kind::Text.generate(100_000, 7);
        assert!(check(&text) < 60_000);
        let mut random = Random::new(3);
        for _ in 0..2000 {
            let length = random.below(700) as usize;
            let letters = 1 + random.below(4);
            let source: Vec<u8> = (0..length).map(|_| random.below(letters) as u8).collect();
            check(&source);
        }
    }

    #[test]
    fn a_short_text_has_nine_bits_a_letter() {
        assert_eq!(encode(b"abcdefgh").len(), 9);
    }

    #[test]
    fn bad_codes_are_refused() {
        let mut random = Random::new(5);
        for _ in 0..2000 {
            let stored: Vec<u8> = (0..random.below(60)).map(|_| random.next() as u8).collect();
            if let Some(found) = decode(&stored, 100) {
                assert_eq!(found.len(), 100);
            }
        }
        assert_eq!(decode(&[], 1), None);
    }
}
