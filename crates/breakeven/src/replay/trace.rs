//! Traces: sequences of accessed blocks, read from their published forms.
//!
//! [`TraceFormat::parse`] takes a whole trace in memory and returns its [`Request`]s. Other bytes are refused with the
//! place of the fault.
#![deny(unsafe_code)]

use std::str::FromStr;

use crate::error::{Error, Result};

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The block.
    pub key: u64,
    /// Its bytes, if the trace has them.
    pub bytes: Option<u32>,
}

/// The form of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// `oracleGeneral`: records of 24 bytes, little endian: time u32, key u64, bytes u32, next access i64
    /// (libCacheSim).
    OracleGeneral,
    /// `u32`: keys of 4 bytes, little endian.
    U32,
    /// `u64`: keys of 8 bytes, little endian.
    U64,
    /// `text`: a decimal key a line; lines that begin with `*` or `#` are skipped (LIRS).
    Text,
    /// `csv`: time, key and bytes a line, separated by spaces, tabs or commas. Further columns and a first line of
    /// names are skipped.
    Csv,
}

/// Every form with its name.
pub(super) const FORMATS: [(&str, TraceFormat); 5] = [
    ("oracleGeneral", TraceFormat::OracleGeneral),
    ("u32", TraceFormat::U32),
    ("u64", TraceFormat::U64),
    ("text", TraceFormat::Text),
    ("csv", TraceFormat::Csv),
];

impl FromStr for TraceFormat {
    type Err = Error;
    fn from_str(text: &str) -> Result<TraceFormat> {
        let found = FORMATS.iter().find(|(name, _)| *name == text);
        found.map(|(_, format)| *format).ok_or_else(|| {
            let names = FORMATS.map(|(name, _)| name).join(", ");
            Error::parse("trace format", text, format!("expected one of {names}"))
        })
    }
}

impl TraceFormat {
    /// Reads a trace.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] for a truncated record, [`Error::Parse`] for a line of another form.
    pub fn parse(self, bytes: &[u8]) -> Result<Vec<Request>> {
        match self {
            TraceFormat::OracleGeneral => records(bytes, |record: &[u8; 24]| Request {
                key: u64::from_le_bytes(part(record, 4)),
                bytes: Some(u32::from_le_bytes(part(record, 12))),
            }),
            TraceFormat::U32 => records(bytes, |record: &[u8; 4]| Request {
                key: u64::from(u32::from_le_bytes(*record)),
                bytes: None,
            }),
            TraceFormat::U64 => records(bytes, |record: &[u8; 8]| Request {
                key: u64::from_le_bytes(*record),
                bytes: None,
            }),
            TraceFormat::Text => lines(bytes, |_, fields| {
                let &[key] = fields else { return None };
                Some(Some(Request {
                    key: key.parse().ok()?,
                    bytes: None,
                }))
            }),
            TraceFormat::Csv => lines(bytes, |is_first, fields| {
                let &[time, key, bytes, ..] = fields else {
                    return None;
                };
                let is_number = |field: &str| field.parse::<f64>().is_ok();
                if is_first && ![time, key, bytes].into_iter().any(is_number) {
                    return Some(None);
                }
                Some(Some(Request {
                    key: key.parse().ok()?,
                    bytes: Some(bytes.parse().ok()?),
                }))
            }),
        }
    }
}

fn part<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record[at..at + N].try_into().expect("a part of the record")
}

fn records<const N: usize>(
    bytes: &[u8],
    request: impl Fn(&[u8; N]) -> Request,
) -> Result<Vec<Request>> {
    let (records, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        let offset = (bytes.len() - rest.len()) as u64;
        let (expected, found) = (format!("{N} bytes"), format!("{} bytes", rest.len()));
        return Err(Error::corrupt("trace record", offset, expected, found));
    }
    Ok(records.iter().map(request).collect())
}

/// Reads a request from the fields of each line. `request` gets whether the line is the first, and may skip a line.
fn lines(
    bytes: &[u8],
    request: impl Fn(bool, &[&str]) -> Option<Option<Request>>,
) -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    let mut is_first = true;
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || matches!(line[0], b'*' | b'#') {
            continue;
        }
        let text = String::from_utf8_lossy(line);
        let parts = text.split([' ', '\t', ',']).filter(|part| !part.is_empty());
        let fields: Vec<&str> = parts.collect();
        let found = request(is_first, &fields).ok_or_else(|| {
            let reason = format!("line {} is not of this format", number + 1);
            Error::parse("trace", &text, reason)
        })?;
        requests.extend(found);
        is_first = false;
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: &str, bytes: &[u8], expected: &[(u64, Option<u32>)]) {
        let format: TraceFormat = format.parse().expect("a format");
        let found = format.parse(bytes).expect("a trace");
        let found: Vec<_> = found.iter().map(|it| (it.key, it.bytes)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_published_forms_are_read() {
        let mut record = vec![9, 0, 0, 0];
        record.extend(0x0102_0304_0506u64.to_le_bytes());
        record.extend(4096u32.to_le_bytes());
        record.extend((-1i64).to_le_bytes());
        check(
            "oracleGeneral",
            &record.repeat(2),
            &[(0x0102_0304_0506, Some(4096)); 2],
        );
        check("u32", &[1, 0, 0, 0, 0, 1, 0, 0], &[(1, None), (256, None)]);
        check("u64", &[7, 0, 0, 0, 0, 0, 0, 1], &[(7 | 1 << 56, None)]);
        check(
            "text",
            b"12\n*\n 13 \r\n\n# x\n14",
            &[(12, None), (13, None), (14, None)],
        );
        check(
            "csv",
            b"0 5 100\n1\t6,200\n",
            &[(5, Some(100)), (6, Some(200))],
        );
        check(
            "csv",
            b"# x\ntime,key,size,op\n0,5,100,read\n\n1,6,200,write,7\n",
            &[(5, Some(100)), (6, Some(200))],
        );
        check("text", b"", &[]);
    }

    /// A truncated trace is refused, or its accesses are those of the whole except for the last. A part of the last may
    /// be another number.
    #[test]
    fn a_trace_may_be_cut_at_every_byte() {
        let keys = [0, 1, 9, 10, 4_294_967_295, u64::MAX, 7_777_777];
        let (mut refused, mut read) = (0, 0);
        for (name, format) in FORMATS {
            let has_sizes = matches!(format, TraceFormat::OracleGeneral | TraceFormat::Csv);
            let is_narrow = format == TraceFormat::U32;
            let request = |key: &u64| Request {
                key: if is_narrow {
                    u64::from(*key as u32)
                } else {
                    *key
                },
                bytes: has_sizes.then_some(u32::MAX),
            };
            let requests: Vec<Request> = keys.iter().map(request).collect();
            let whole = crate::replay::fuzz::written(format, &requests);
            assert_eq!(format.parse(&whole).expect("a trace"), requests, "{name}");
            for length in 0..whole.len() {
                match format.parse(&whole[..length]) {
                    Ok(found) => {
                        let sure = found.len().saturating_sub(1);
                        assert_eq!(found[..sure], requests[..sure], "{name} cut at {length}");
                        assert!(found.len() <= requests.len());
                        read += 1;
                    }
                    Err(Error::Corrupt { .. } | Error::Parse { .. }) => refused += 1,
                    Err(error) => panic!("{name} cut at {length}: {error}"),
                }
            }
        }
        println!("{refused} cuts refused, {read} read");
        assert!(refused > 150 && read > 50);
    }

    #[test]
    fn numbers_too_large_are_refused_and_long_lines_told_in_short() {
        let refused = |format: TraceFormat, bytes: &[u8]| {
            format.parse(bytes).expect_err("no trace").to_string()
        };
        refused(TraceFormat::Text, b"18446744073709551616\n");
        refused(TraceFormat::Text, b"1e9\n");
        refused(TraceFormat::Text, b"0x10\n");
        refused(TraceFormat::Csv, b"1 18446744073709551616 1\n");
        refused(TraceFormat::Csv, b"1 2 4294967296\n");
        let found = refused(TraceFormat::Text, &[b'9'; 1 << 20]);
        assert!(found.len() < 300, "{} bytes", found.len());
        let found = refused(TraceFormat::Csv, &b", ".repeat(1 << 19));
        assert!(found.len() < 300, "{} bytes", found.len());
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_place() {
        let refused = |format: TraceFormat, bytes: &[u8]| {
            format.parse(bytes).expect_err("no trace").to_string()
        };
        let found = refused(TraceFormat::U32, &[1, 2, 3, 4, 5]);
        assert_eq!(
            found,
            "corrupt trace record at byte 4: expected 4 bytes, found 1 bytes"
        );
        let found = refused(TraceFormat::Text, b"1\n2 3\n");
        assert!(found.contains("line 2"), "{found}");
        refused(TraceFormat::Text, b"-1\n");
        refused(TraceFormat::Csv, b"1 2 99999999999\n");
        refused(TraceFormat::Csv, b"\xff\xfe\n");
        // Only the first line may have names.
        refused(TraceFormat::Csv, b"0 5 100\ntime key size\n");
        refused(TraceFormat::Csv, b"0 key size\n");
        refused(TraceFormat::Csv, b"time key\n");
        assert!("lru".parse::<TraceFormat>().is_err());
    }
}
