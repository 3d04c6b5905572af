//! Fuzz target of traces: any bytes read in any form.
#![deny(unsafe_code)]

use std::fmt::Write;

use super::trace::{FORMATS, Request, TraceFormat};

/// A longer error shows more of the input than a person reads.
const ERROR_BYTES_MAX: usize = 1000;

/// Reads any bytes as a trace: the form, then the bytes. A trace that is read and written again in that form is read
/// the same. A refusal gives the reason in a line or two.
pub fn fuzz_trace(data: &[u8]) {
    let Some((&form, bytes)) = data.split_first() else {
        return;
    };
    let (_, format) = FORMATS[usize::from(form) % FORMATS.len()];
    match format.parse(bytes) {
        Ok(requests) => {
            assert!(
                requests.len() <= bytes.len(),
                "an access takes a byte or more"
            );
            let again = format.parse(&written(format, &requests));
            assert_eq!(again.expect("what was written"), requests);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(
                text.len() <= ERROR_BYTES_MAX,
                "{} bytes of error",
                text.len()
            );
        }
    }
}

/// Writes accesses in a form.
pub fn written(format: TraceFormat, requests: &[Request]) -> Vec<u8> {
    let (mut bytes, mut text) = (Vec::new(), String::new());
    for request in requests {
        let key = request.key;
        let size = request.bytes.unwrap_or_default();
        match format {
            TraceFormat::OracleGeneral => {
                bytes.extend([0; 4]);
                bytes.extend(key.to_le_bytes());
                bytes.extend(size.to_le_bytes());
                bytes.extend((-1i64).to_le_bytes());
            }
            TraceFormat::U32 => bytes.extend((key as u32).to_le_bytes()),
            TraceFormat::U64 => bytes.extend(key.to_le_bytes()),
            TraceFormat::Text => writeln!(text, "{key}").expect("a string grows"),
            TraceFormat::Csv => writeln!(text, "0,{key},{size}").expect("a string grows"),
        }
    }
    bytes.extend(text.bytes());
    bytes
}
