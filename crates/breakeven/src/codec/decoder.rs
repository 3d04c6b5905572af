//! The record beside a stored block that tells how to decode it.
//!
//! A [`Decoder`] is three numbers: a codec, a filter and a dictionary. It never holds a level, because a reader does
//! not need the writer's effort. The numbers come from one table, which only grows; `docs/format.md` lists it, and a
//! test holds the two together.

/// The stored triple that determines how a block is decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Decoder {
    /// A codec number, one of the `CODEC_` constants.
    pub codec: u8,
    /// A filter number, one of the `FILTER_` constants.
    pub filter: u8,
    /// The store's own number of a dictionary record, 0 for none.
    pub dictionary: u32,
}

/// One row of the decoder table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderRow {
    /// The number that is stored.
    pub number: u8,
    /// The name people read.
    pub name: &'static str,
    /// The form of the stored bytes.
    pub form: &'static str,
    /// The format version in which the row became readable; `None` while it is only reserved.
    pub since: Option<u16>,
}

impl Decoder {
    /// The raw bytes.
    pub const CODEC_STORE: u8 = 0;
    /// One raw LZ4 block.
    pub const CODEC_LZ4: u8 = 1;
    /// One standard Zstandard frame.
    pub const CODEC_ZSTD: u8 = 2;
    /// One raw deflate stream.
    pub const CODEC_DEFLATE: u8 = 3;
    /// One standard `.xz` stream.
    pub const CODEC_XZ: u8 = 4;
    /// One standard `.bz2` stream.
    pub const CODEC_BZIP2: u8 = 5;
    /// The content of the one block of a Zstandard frame.
    pub const CODEC_ZSTD_BARE: u8 = 6;
    /// Codes of a static symbol table: reserved, since no medium has them.
    pub const CODEC_FSST: u8 = 7;
    /// No filter.
    pub const FILTER_NONE: u8 = 0;
    /// Bytes of two-byte elements grouped by rank.
    pub const FILTER_SHUFFLE_2: u8 = 1;
    /// Bytes of four-byte elements grouped by rank.
    pub const FILTER_SHUFFLE_4: u8 = 2;
    /// Bytes of eight-byte elements grouped by rank.
    pub const FILTER_SHUFFLE_8: u8 = 3;

    /// The decoder of bytes stored raw.
    pub const STORE: Decoder = Decoder {
        codec: Decoder::CODEC_STORE,
        filter: Decoder::FILTER_NONE,
        dictionary: 0,
    };

    /// The codecs of the table. Rows are added, never changed or removed.
    pub const CODECS: &[DecoderRow] = &[
        DecoderRow::readable(0, "store", "the bytes as they are"),
        DecoderRow::readable(1, "lz4", "one raw LZ4 block, no frame, no length"),
        DecoderRow::readable(2, "zstd", "one standard Zstandard frame (RFC 8878)"),
        DecoderRow::readable(3, "deflate", "one raw deflate stream (RFC 1951)"),
        DecoderRow::readable(4, "xz", "one standard .xz stream"),
        DecoderRow::readable(5, "bzip2", "one standard .bz2 stream"),
        DecoderRow::readable(
            6,
            "zstd-bare",
            "the content of one compressed Zstandard block",
        ),
        DecoderRow::reserved(7, "fsst", "codes of a static symbol table"),
        DecoderRow::reserved(
            255,
            "erased",
            "never given, so that erased flash names no codec",
        ),
    ];

    /// The filters of the table. Rows are added, never changed or removed.
    pub const FILTERS: &[DecoderRow] = &[
        DecoderRow::readable(0, "none", "the bytes as they are"),
        DecoderRow::readable(1, "shuffle2", "2 planes of floor(n/2) bytes, then the rest"),
        DecoderRow::readable(2, "shuffle4", "4 planes of floor(n/4) bytes, then the rest"),
        DecoderRow::readable(3, "shuffle8", "8 planes of floor(n/8) bytes, then the rest"),
        DecoderRow::reserved(
            255,
            "erased",
            "never given, so that erased flash names no filter",
        ),
    ];

    /// Returns the element width of the filter; 1 for no filter, `None` for a number outside the table.
    pub(super) fn shuffle_width(self) -> Option<usize> {
        match self.filter {
            Decoder::FILTER_NONE => Some(1),
            Decoder::FILTER_SHUFFLE_2 => Some(2),
            Decoder::FILTER_SHUFFLE_4 => Some(4),
            Decoder::FILTER_SHUFFLE_8 => Some(8),
            _ => None,
        }
    }
}

impl DecoderRow {
    const fn readable(number: u8, name: &'static str, form: &'static str) -> DecoderRow {
        DecoderRow {
            number,
            name,
            form,
            since: Some(1),
        }
    }

    const fn reserved(number: u8, name: &'static str, form: &'static str) -> DecoderRow {
        DecoderRow {
            number,
            name,
            form,
            since: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rows as the tables of `docs/format.md` print them.
    fn printed(rows: &[DecoderRow]) -> Vec<String> {
        let print = |row: &DecoderRow| {
            let since = row.since.map_or("reserved".to_string(), |v| v.to_string());
            format!("| {} | {} | {} | {since} |", row.number, row.name, row.form)
        };
        rows.iter().map(print).collect()
    }

    /// Returns the rows of the table below the heading, with numbers in their first column.
    fn documented(text: &str, heading: &str) -> Vec<String> {
        let (_, section) = text.split_once(heading).expect("the heading");
        let section = section.split("\n#").next().unwrap_or(section);
        let is_row = |line: &&str| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit();
        section.lines().filter(is_row).map(str::to_string).collect()
    }

    #[test]
    fn the_document_lists_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(documented(&text, "### Codecs\n"), printed(Decoder::CODECS));
        assert_eq!(
            documented(&text, "### Filters\n"),
            printed(Decoder::FILTERS)
        );
    }

    #[test]
    fn no_number_is_given_twice() {
        for rows in [Decoder::CODECS, Decoder::FILTERS] {
            assert!(rows.is_sorted_by(|a, b| a.number < b.number));
        }
    }
}
