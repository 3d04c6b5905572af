//! One colour for each method, the same in every picture.
//!
//! A family of methods has a hue, and its levels go from light to dark. The hues are blue, orange, olive, green,
//! violet, red and grey. People who do not see red or green can tell them apart. Every mark has a label besides its
//! colour.

/// A hue with its steps from light to dark.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name, as the style's classes begin.
    pub name: &'static str,
    /// The codecs that belong to it, as methods begin.
    codecs: &'static [&'static str],
    /// Steps of lightness.
    pub steps: usize,
}

const fn family(name: &'static str, codecs: &'static [&'static str], steps: usize) -> Family {
    Family {
        name,
        codecs,
        steps,
    }
}

/// All families; a codec without a family belongs to the last.
pub const FAMILIES: [Family; 7] = [
    family("store", &["store", "raw"], 1),
    family("lz4", &["lz4", "lzo", "lzop"], 4),
    family("zstd", &["zstd"], 5),
    family("deflate", &["deflate", "gzip", "gz"], 3),
    family("bzip2", &["bzip2", "bz"], 2),
    family("xz", &["xz", "ppmd", "7z"], 3),
    family("other", &[], 3),
];

/// Returns the colour class of each method: a family's methods, in the order given, take its steps
/// from light to dark.
pub fn classes(methods: &[&str]) -> Vec<String> {
    let families: Vec<usize> = methods.iter().map(|method| family_of(method)).collect();
    let mut seen = [0; FAMILIES.len()];
    let class = |of: &usize| {
        let family = &FAMILIES[*of];
        let count = families.iter().filter(|other| *other == of).count();
        let rank = seen[*of];
        seen[*of] += 1;
        let step = match count {
            1 => family.steps.div_ceil(2),
            _ => 1 + (rank * (family.steps - 1) + (count - 1) / 2) / (count - 1),
        };
        format!("{}-{step}", family.name)
    };
    families.iter().map(class).collect()
}

fn family_of(method: &str) -> usize {
    let codec: String = method
        .chars()
        .take_while(char::is_ascii_alphanumeric)
        .collect();
    let belongs = |family: &Family| {
        let names = family.codecs.iter();
        names.clone().any(|name| codec == *name)
            || (family.name == "lz4" && codec.starts_with("lz4"))
    };
    // A filter before a codec makes another method of it.
    let found = match method.contains('+') {
        true => None,
        false => FAMILIES.iter().position(belongs),
    };
    found.unwrap_or(FAMILIES.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_go_from_light_to_dark() {
        let check = |methods: &[&str], expected: &[&str]| {
            assert_eq!(classes(methods), expected, "{methods:?}");
        };
        check(
            &["store", "lz4:1", "lz4hc:9"],
            &["store-1", "lz4-1", "lz4-4"],
        );
        check(
            &["zstd:1", "zstd:3", "zstd:9", "zstd:19"],
            &["zstd-1", "zstd-2", "zstd-4", "zstd-5"],
        );
        check(&["zstd:3"], &["zstd-3"]);
        check(&["shuffle4+zstd:3", "<b>"], &["other-1", "other-3"]);
        check(
            &["xz:6", "bzip2:9", "deflate:6"],
            &["xz-2", "bzip2-1", "deflate-2"],
        );
        let many = vec!["zstd:1"; 12];
        assert_eq!(classes(&many).last().map(String::as_str), Some("zstd-5"));
    }
}
