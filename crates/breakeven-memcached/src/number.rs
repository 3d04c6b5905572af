//! Numbers as C's `strtoul` family reads them and memcached judges them: spaces and a sign before, a space or the
//! end after. Clients and tests rely on the odd cases, such as a flag of 2^32 that is taken as 0.

/// Reads an unsigned number of 64 bits.
pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    let (is_negative, magnitude) = magnitude(text)?;
    let number = match is_negative {
        true => magnitude.wrapping_neg(),
        false => magnitude,
    };
    // A small number that was negative is refused, one that wraps to a small number is not.
    (number <= i64::MAX as u64 || !text.contains(&b'-')).then_some(number)
}

/// Reads an unsigned number; the lowest 32 bits count.
pub(crate) fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned(text).map(|number| number as u32)
}

/// Reads a signed number; the lowest 32 bits count.
pub(crate) fn signed_32(text: &[u8]) -> Option<i32> {
    let (is_negative, magnitude) = magnitude(text)?;
    let limit = i64::MAX as u64 + u64::from(is_negative);
    if magnitude > limit {
        return None;
    }
    let number = match is_negative {
        true => magnitude.wrapping_neg(),
        false => magnitude,
    };
    Some(number as i32)
}

/// Whether the sign is a minus, and the digits' number; `None` if there is none or it takes more than 64 bits.
fn magnitude(text: &[u8]) -> Option<(bool, u64)> {
    let start = text.iter().position(|byte| !is_space(*byte))?;
    let text = &text[start..];
    let (is_negative, text) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    if end == 0 || text.get(end).is_some_and(|byte| !is_space(*byte)) {
        return None;
    }
    let mut number = 0_u64;
    for digit in &text[..end] {
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    Some((is_negative, number))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Adds the digits of a number to `target`.
pub(crate) fn push(target: &mut Vec<u8>, number: impl itoa::Integer) {
    target.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        let check = |text: &str, long: Option<u64>, word: Option<u32>, signed: Option<i32>| {
            let text = text.as_bytes();
            assert_eq!(
                (unsigned(text), unsigned_32(text), signed_32(text)),
                (long, word, signed),
                "{text:?}"
            );
        };
        check("0", Some(0), Some(0), Some(0));
        check("+7", Some(7), Some(7), Some(7));
        check("\t7", Some(7), Some(7), Some(7));
        check("7\tx", Some(7), Some(7), Some(7));
        check("7x", None, None, None);
        check("", None, None, None);
        check("-", None, None, None);
        check("-1", None, None, Some(-1));
        check("4294967296", Some(1 << 32), Some(0), Some(0));
        check(
            "4294967295",
            Some(u64::from(u32::MAX)),
            Some(u32::MAX),
            Some(-1),
        );
        check("18446744073709551615", Some(u64::MAX), Some(u32::MAX), None);
        check("18446744073709551616", None, None, None);
        check("-18446744073709551615", Some(1), Some(1), None);
        check("-9223372036854775808", None, None, Some(0));
    }
}
