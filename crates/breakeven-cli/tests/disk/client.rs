//! A client of the NBD protocol that says what it is told to, right or wrong.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;

pub const FUA: u16 = 1;

/// Seconds after which a server counts as hanging: a deadline, not a measurement.
const DEADLINE: Duration = Duration::from_secs(60);

pub struct Client {
    pub stream: UnixStream,
}

impl Client {
    /// Connects and greets, and leaves the options to the caller.
    pub fn greet(socket: &Path) -> io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        let mut hello = [0; 18];
        stream.read_exact(&mut hello)?;
        assert_eq!(&hello[..16], b"NBDMAGICIHAVEOPT");
        stream.write_all(&3u32.to_be_bytes())?;
        Ok(Client { stream })
    }

    /// Connects to an export, by its name alone.
    pub fn connect(socket: &Path, name: &str) -> io::Result<Client> {
        let mut client = Client::greet(socket)?;
        client.option(1, name.as_bytes())?;
        let mut reply = [0; 10];
        client.stream.read_exact(&mut reply)?;
        Ok(client)
    }

    pub fn option(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend_from_slice(&option.to_be_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
        self.stream.write_all(&bytes)
    }

    /// Reads the reply to an option; returns its kind.
    pub fn option_reply(&mut self) -> io::Result<u32> {
        let mut head = [0; 20];
        self.stream.read_exact(&mut head)?;
        let mut data = vec![0; u32::from_be_bytes(head[16..].try_into().unwrap()) as usize];
        self.stream.read_exact(&mut data)?;
        Ok(u32::from_be_bytes(head[12..16].try_into().unwrap()))
    }

    pub fn send(&mut self, flags: u16, kind: u16, offset: u64, length: u32) -> io::Result<()> {
        self.send_as(7, (flags, kind), offset, length)
    }

    /// Sends a request under a number that its reply will have.
    pub fn send_as(
        &mut self,
        cookie: u64,
        (flags, kind): (u16, u16),
        offset: u64,
        length: u32,
    ) -> io::Result<()> {
        let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&cookie.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        self.stream.write_all(&bytes)
    }

    /// Reads a reply's error.
    pub fn error(&mut self) -> io::Result<u32> {
        Ok(self.reply()?.1)
    }

    /// Reads a reply's number and error.
    pub fn reply(&mut self) -> io::Result<(u64, u32)> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        assert_eq!(head[..4], 0x6744_6698u32.to_be_bytes());
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        Ok((u64::from_be_bytes(head[8..].try_into().unwrap()), error))
    }

    pub fn write(&mut self, flags: u16, offset: u64, bytes: &[u8]) -> io::Result<u32> {
        self.send(flags, WRITE, offset, bytes.len() as u32)?;
        self.stream.write_all(bytes)?;
        self.error()
    }

    pub fn read(&mut self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.send(0, READ, offset, length as u32)?;
        assert_eq!(self.error()?, 0);
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub fn request(&mut self, kind: u16, offset: u64, length: u32) -> io::Result<u32> {
        self.send(0, kind, offset, length)?;
        self.error()
    }
}
