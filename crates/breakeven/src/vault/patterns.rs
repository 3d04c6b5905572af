//! Patterns of paths that are excluded or picked.
//!
//! A pattern is parts between `/`. In a part `*` stands for any bytes, `?` for one, `[a-z]` for one of a range. The
//! part `**` stands for any parts. A pattern that begins with `/` is matched from the root, another one against the end
//! of a path. A part `.` stands for nothing. A folder that is excluded or picked takes all its entries along.

/// Patterns of paths that are excluded or picked.
#[derive(Clone, Debug, Default)]
pub struct PathPatterns {
    patterns: Vec<PathPattern>,
}

#[derive(Clone, Debug)]
struct PathPattern {
    typed: Vec<u8>,
    parts: Vec<Vec<u8>>,
}

impl PathPatterns {
    /// Takes patterns as typed. A pattern without a part matches nothing.
    pub fn new(patterns: impl IntoIterator<Item = Vec<u8>>) -> PathPatterns {
        let parsed = |typed: Vec<u8>| {
            let is_anchored = typed.first() == Some(&b'/');
            let parts = typed.split(|byte| *byte == b'/');
            let parts = parts.filter(|part| !part.is_empty() && *part != b".");
            let parts: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
            let open = (!is_anchored).then(|| b"**".to_vec());
            (!parts.is_empty()).then(|| PathPattern {
                parts: open.into_iter().chain(parts).collect(),
                typed,
            })
        };
        PathPatterns {
            patterns: patterns.into_iter().filter_map(parsed).collect(),
        }
    }

    /// Says whether a path, given as its parts from the root, is meant.
    pub fn matches(&self, path: &[Vec<u8>]) -> bool {
        self.matching(path).next().is_some()
    }

    /// Says whether a path is meant, or a folder that it lies in.
    pub fn matches_around(&self, path: &[Vec<u8>]) -> bool {
        (1..=path.len()).any(|length| self.matches(&path[..length]))
    }

    /// Returns which of the patterns, in the order in which they were given, mean a path.
    pub fn matching(&self, path: &[Vec<u8>]) -> impl Iterator<Item = usize> {
        let patterns = self.patterns.iter().enumerate();
        let meant = patterns.filter(|(_, pattern)| parts_match(&pattern.parts, path));
        meant.map(|(at, _)| at)
    }

    /// Says whether something below a folder may be meant.
    pub fn may_match_below(&self, folder: &[Vec<u8>]) -> bool {
        self.patterns
            .iter()
            .any(|pattern| parts_may_match_below(&pattern.parts, folder))
    }

    /// Returns a pattern as typed, by its place.
    pub fn typed(&self, place: usize) -> &[u8] {
        &self.patterns[place].typed
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.patterns.len()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }
}

fn parts_may_match_below(pattern: &[Vec<u8>], folder: &[Vec<u8>]) -> bool {
    for (at, part) in pattern.iter().enumerate() {
        match folder.get(at) {
            _ if part == b"**" => return true,
            Some(name) if part_matches(part, name) => {}
            Some(_) => return false,
            None => return true,
        }
    }
    false
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

/// Matches one part. On a mismatch behind a star, the star takes one byte more; the time is the product of the lengths.
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

    fn parts_of(path: &str) -> Vec<Vec<u8>> {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.map(|part| part.as_bytes().to_vec()).collect()
    }

    fn check(pattern: &str, path: &str, expected: bool) {
        let patterns = PathPatterns::new([pattern.as_bytes().to_vec()]);
        assert_eq!(
            patterns.matches(&parts_of(path)),
            expected,
            "{pattern} on {path}"
        );
    }

    #[test]
    fn what_may_lie_below_a_folder_is_looked_for_there() {
        let check = |pattern: &str, folder: &str, expected: bool| {
            let patterns = PathPatterns::new([pattern.as_bytes().to_vec()]);
            let found = patterns.may_match_below(&parts_of(folder));
            assert_eq!(found, expected, "{pattern} below {folder}");
        };
        check("*.o", "/a/b", true);
        check("/a/b/*.o", "/a", true);
        check("/a/b/*.o", "/a/b", true);
        check("/a/b/*.o", "/a/c", false);
        check("/a/b/*.o", "/a/b/c", false);
        check("/a/**/c", "/a/b/d/e", true);
        check("/?/b", "/aa", false);
    }

    #[test]
    fn what_lies_in_a_folder_that_is_meant_is_too() {
        let patterns = PathPatterns::new([b"b".to_vec(), b"c".to_vec()]);
        assert!(patterns.matches_around(&parts_of("/a/b/x/y")));
        assert!(!patterns.matches_around(&parts_of("/a/x")));
        let meant: Vec<_> = patterns.matching(&parts_of("/b/c")).collect();
        assert_eq!(meant, [1]);
    }

    #[test]
    fn patterns_match_as_they_say() {
        check("*.o", "/a/b/c.o", true);
        check("./d/keep", "/srv/d/keep", true);
        check(".", "/srv", false);
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
