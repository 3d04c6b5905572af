//! A command line: its end and its words.

/// The words that a command may have, its name among them; only fetches have more.
const WORDS_MAX: usize = 23;

/// The first words of a line.
pub(crate) struct Words<'a> {
    words: [&'a [u8]; WORDS_MAX],
    count: usize,
}

impl<'a> Words<'a> {
    /// Splits a line at spaces, which alone separate words.
    pub(crate) fn of(line: &'a [u8]) -> Words<'a> {
        let mut words = Words {
            words: [&[]; WORDS_MAX],
            count: 0,
        };
        for word in split(line).take(WORDS_MAX) {
            words.words[words.count] = word;
            words.count += 1;
        }
        words
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns a word; an empty one behind the last.
    pub(crate) fn at(&self, number: usize) -> &'a [u8] {
        self.words.get(number).copied().unwrap_or_default()
    }

    /// Returns the words from a number on.
    pub(crate) fn from(&self, number: usize) -> &[&'a [u8]] {
        self.words[..self.count].get(number..).unwrap_or_default()
    }

    /// Whether the last word asks for no reply.
    pub(crate) fn is_silent(&self) -> bool {
        self.count > 0 && self.at(self.count - 1) == b"noreply"
    }
}

/// Returns the words of a text of any length.
pub(crate) fn split(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
}

/// Returns the line at the beginning of the input and the bytes that it takes. The line comes without its end and
/// without anything behind a zero byte in it. `None` if its end has not come.
pub(crate) fn take(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memchr(b'\n', input)?;
    let mut line = &input[..end];
    if let [start @ .., b'\r'] = line
        && !start.is_empty()
    {
        line = start;
    }
    if let Some(zero) = memchr::memchr(0, line) {
        line = &line[..zero];
    }
    Some((line, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_the_field_ends_them() {
        let check = |input: &str, expected: Option<(&str, usize)>| {
            let expected = expected.map(|(line, taken)| (line.as_bytes(), taken));
            assert_eq!(take(input.as_bytes()), expected, "{input:?}");
        };
        check("get a\r\nb", Some(("get a", 7)));
        check("get a\nb", Some(("get a", 6)));
        check("get a\r", None);
        check("\r\n", Some(("\r", 2)));
        check("\n", Some(("", 1)));
        check("a\0b\r\n", Some(("a", 5)));
    }

    #[test]
    fn words_are_split_at_spaces_alone() {
        let words = Words::of(b"  set a\tb  0 noreply ");
        assert_eq!(words.from(0), [&b"set"[..], b"a\tb", b"0", b"noreply"]);
        assert!(words.is_silent());
        assert_eq!(words.at(9), b"");
        let many = "w ".repeat(40);
        assert_eq!(Words::of(many.as_bytes()).count(), WORDS_MAX);
        assert_eq!(Words::of(b"").count(), 0);
    }
}
