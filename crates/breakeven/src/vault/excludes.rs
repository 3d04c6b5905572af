//! Patterns of what is left out.
//!
//! A pattern is parts between `/`; in a part `*` stands for any bytes, `?` for one, `[a-z]` for one of a range, and the
//! part `**` for any parts. A pattern that begins with `/` is matched from the root, another one against
//! the end of a path. What lies in a folder that is left out is left out with it.

/// Patterns of what is left out.
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    patterns: Vec<Vec<Vec<u8>>>,
}

impl Excludes {
    /// Takes patterns as they were typed. One without a part names nothing.
    pub fn new(patterns: impl IntoIterator<Item = Vec<u8>>) -> Excludes {
        let parts = |pattern: Vec<u8>| {
            let is_anchored = pattern.first() == Some(&b'/');
            let parts = pattern
                .split(|byte| *byte == b'/')
                .filter(|part| !part.is_empty());
            let open = (!is_anchored).then(|| b"**".to_vec());
            open.into_iter().chain(parts.map(<[u8]>::to_vec)).collect()
        };
        Excludes {
            patterns: (patterns
                .into_iter()
                .filter(|pattern| pattern.iter().any(|byte| *byte != b'/')))
            .map(parts)
            .collect(),
        }
    }

    /// Says whether a path, given as its parts from the root, is left out.
    pub fn matches(&self, path: &[Vec<u8>]) -> bool {
        self.patterns
            .iter()
            .any(|pattern| parts_match(pattern, path))
    }
}

fn parts_match(pattern: &[Vec<u8>], path: &[Vec<u8>]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((part, rest)) if part == b"**" => {
            (0..=path.len()).any(|skipped| parts_match(rest, &path[skipped..]))
        }
        Some((part, rest)) => path
            .split_first()
            .is_some_and(|(name, below)| part_matches(part, name) && parts_match(rest, below)),
    }
}

/// Matches one part. On a mismatch behind a star, the star takes one byte more: time is the product of the lengths.
fn part_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star = None;
    while from < name.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at, from));
            at += 1;
        } else if let Some(length) = one_matches(&pattern[at..], name[from]) {
            at += length;
            from += 1;
        } else if let Some((star_at, star_from)) = star {
            star = Some((star_at, star_from + 1));
            (at, from) = (star_at + 1, star_from + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Returns the length of the pattern's first element if it stands for the byte.
fn one_matches(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == b']')?;
            let (is_not, set) = match &rest[..end] {
                [b'!' | b'^', set @ ..] => (true, set),
                set => (false, set),
            };
            let mut at = 0;
            let mut is_in = false;
            while at < set.len() {
                let (low, high, length) = match &set[at..] {
                    [low, b'-', high, ..] => (*low, *high, 3),
                    _ => (set[at], set[at], 1),
                };
                is_in |= (low..=high).contains(&byte);
                at += length;
            }
            (is_in != is_not).then_some(end + 2)
        }
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, path: &str, expected: bool) {
        let excludes = Excludes::new([pattern.as_bytes().to_vec()]);
        let parts: Vec<Vec<u8>> = (path.split('/').filter(|part| !part.is_empty()))
            .map(|part| part.as_bytes().to_vec())
            .collect();
        assert_eq!(excludes.matches(&parts), expected, "{pattern} on {path}");
    }

    #[test]
    fn patterns_match_as_they_say() {
        check("*.o", "/a/b/c.o", true);
        check("*.o", "/a/b.o/c", false);
        check("b/*.o", "/a/b/c.o", true);
        check("/b/*.o", "/a/b/c.o", false);
        check("/a/**/c.o", "/a/x/y/c.o", true);
        check("/a/**/c.o", "/a/c.o", true);
        check("c?[0-9]", "/cx7", true);
        check("c?[!0-9]", "/cx7", false);
        check("a*b*c", "/aXbXbc", true);
        check("a*b*c", "/aXbXbd", false);
        check("", "/a", false);
        check("//", "/a", false);
    }
}
