//! The loops that finish short and interrupted transfers.
//!
//! They are written once over a raw call. The simulated disk returns short counts and interruptions on purpose, and so
//! proves the very loops of real files. They promise that a read ends only when the buffers are full or the file ends.
//! A write ends only when all is written or an error says otherwise.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

/// The most buffers one system call takes (Linux `IOV_MAX`).
const BUFFERS_MAX: usize = 1024;

/// Reads until `buffers` are full or the file ends, returning the bytes read. `alignment_bytes` is the alignment of the
/// handle. A count that is not a multiple of it can only be the end of the file, and a further call would be refused.
pub(super) fn read_fully(
    buffers: &mut [IoSliceMut<'_>],
    offset: u64,
    alignment_bytes: usize,
    mut call: impl FnMut(&mut [IoSliceMut<'_>], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let mut done = 0;
    while done < wanted {
        match call(&mut rest_mut(buffers, done), offset + done as u64) {
            Ok(0) => break,
            Ok(count) => {
                done += count;
                assert!(done <= wanted, "{done} bytes read into {wanted}");
                if count % alignment_bytes != 0 {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `buffers`. With direct I/O a short count is rounded down to `alignment_bytes` and
/// the broken unit written again.
pub(super) fn write_fully(
    buffers: &[IoSlice<'_>],
    offset: u64,
    alignment_bytes: usize,
    mut call: impl FnMut(&[IoSlice<'_>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let mut done = 0;
    while done < wanted {
        match call(&rest(buffers, done), offset + done as u64) {
            Ok(count) => {
                let kept = count - count % alignment_bytes;
                if kept == 0 {
                    return Err(ErrorKind::WriteZero.into());
                }
                done += kept;
                assert!(done <= wanted, "{done} bytes written of {wanted}");
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the rest of `buffers` behind the first `skip` bytes, at most [`BUFFERS_MAX`] of them.
fn rest_mut<'a>(buffers: &'a mut [IoSliceMut<'_>], mut skip: usize) -> Vec<IoSliceMut<'a>> {
    let mut rest = Vec::with_capacity(buffers.len().min(BUFFERS_MAX));
    for buffer in buffers {
        let start = skip.min(buffer.len());
        skip -= start;
        if start < buffer.len() && rest.len() < BUFFERS_MAX {
            rest.push(IoSliceMut::new(&mut buffer[start..]));
        }
    }
    rest
}

fn rest<'a>(buffers: &'a [IoSlice<'_>], mut skip: usize) -> Vec<IoSlice<'a>> {
    let mut rest = Vec::with_capacity(buffers.len().min(BUFFERS_MAX));
    for buffer in buffers {
        let start = skip.min(buffer.len());
        skip -= start;
        if start < buffer.len() && rest.len() < BUFFERS_MAX {
            rest.push(IoSlice::new(&buffer[start..]));
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `file` through a call that gives at most `chunk` bytes and is interrupted once before each success.
    fn check_read(file: &[u8], lengths: &[usize], chunk: usize, expected: usize) {
        let mut storage: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
        let mut buffers: Vec<IoSliceMut> = storage.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let mut interrupt = false;
        let read = read_fully(&mut buffers, 0, 1, |buffers, offset| {
            interrupt = !interrupt;
            if interrupt {
                return Err(ErrorKind::Interrupted.into());
            }
            let left = &file[(offset as usize).min(file.len())..];
            let count = chunk.min(left.len()).min(buffers[0].len());
            buffers[0][..count].copy_from_slice(&left[..count]);
            Ok(count)
        });
        assert_eq!(read.unwrap(), expected);
        assert_eq!(storage.concat()[..expected], file[..expected]);
    }

    #[test]
    fn reads_are_finished_or_end_with_the_file() {
        let file: Vec<u8> = (0..200).collect();
        check_read(&file, &[10, 0, 90], 7, 100);
        check_read(&file, &[150, 150], 64, 200);
        check_read(&file, &[], 64, 0);
        check_read(&[], &[5], 64, 0);
        check_read(&file, &[1; 150], 64, 150);
    }

    #[test]
    fn a_direct_read_stops_at_an_odd_count() {
        let mut bytes = [0u8; 1024];
        let mut calls = 0;
        let read = read_fully(&mut [IoSliceMut::new(&mut bytes)], 0, 512, |_, _| {
            calls += 1;
            Ok(if calls == 1 { 512 } else { 100 })
        });
        assert_eq!((read.unwrap(), calls), (612, 2));
    }

    #[test]
    fn writes_are_finished_and_never_spin() {
        let bytes: Vec<u8> = (0..=255).collect();
        for (alignment_bytes, chunk) in [(1, 7), (16, 40), (1, 1000)] {
            let mut file = vec![0u8; bytes.len()];
            let buffers = [IoSlice::new(&bytes[..32]), IoSlice::new(&bytes[32..])];
            write_fully(&buffers, 0, alignment_bytes, |buffers, offset| {
                assert_eq!(offset as usize % alignment_bytes, 0);
                let count = chunk.min(buffers[0].len());
                let start = offset as usize;
                file[start..start + count].copy_from_slice(&buffers[0][..count]);
                Ok(count)
            })
            .unwrap();
            assert_eq!(file, bytes);
        }
        let error = write_fully(&[IoSlice::new(&bytes)], 0, 512, |_, _| Ok(511)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WriteZero);
    }
}
