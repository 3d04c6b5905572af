//! Base64 as keys of meta commands have it: bytes outside of the alphabet are skipped, and the first padding ends it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Adds the text form of `bytes` to `target`.
pub(crate) fn encode(bytes: &[u8], target: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let word = group
            .iter()
            .fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - group.len()));
        for place in 0..4 {
            target.push(match place <= group.len() {
                true => ALPHABET[(word >> (18 - 6 * place) & 63) as usize],
                false => b'=',
            });
        }
    }
}

/// Returns the bytes of a text form; `None` if it is none, or of nothing.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits = || {
        text.iter()
            .filter_map(|byte| digit(*byte).map(|value| (value, *byte == b'=')))
    };
    if digits().count() % 4 != 0 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut word = 0_u32;
    let mut padding = 0;
    for (number, (value, is_padding)) in digits().enumerate() {
        word = word << 6 | value;
        padding += usize::from(is_padding);
        if number % 4 == 3 {
            if padding > 2 {
                return None;
            }
            bytes.extend_from_slice(&word.to_be_bytes()[1..4 - padding]);
            word = 0;
            if padding > 0 {
                break;
            }
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

fn digit(byte: u8) -> Option<u32> {
    let place = |byte: u8, first: u8, value: u32| u32::from(byte - first) + value;
    match byte {
        b'A'..=b'Z' => Some(place(byte, b'A', 0)),
        b'a'..=b'z' => Some(place(byte, b'a', 26)),
        b'0'..=b'9' => Some(place(byte, b'0', 52)),
        b'+' => Some(62),
        b'/' => Some(63),
        b'=' => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_come_back() {
        let check = |bytes: &[u8], text: &str| {
            let mut encoded = Vec::new();
            encode(bytes, &mut encoded);
            assert_eq!(encoded, text.as_bytes());
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes));
        };
        check(b"f", "Zg==");
        check(b"fo", "Zm8=");
        check(b"foo", "Zm9v");
        check(&[0, 255, 32, 13, 10], "AP8gDQo=");
    }

    #[test]
    fn what_is_no_text_form_is_refused() {
        let check = |text: &str| assert_eq!(decode(text.as_bytes()), None, "{text:?}");
        ["", "a", "abc", "a===", "====", "!!!!"]
            .into_iter()
            .for_each(check);
    }
}
