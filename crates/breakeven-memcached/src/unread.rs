//! Replies that wait for clients to read them. Equal ones are held once, as memcached refers to one item for all
//! clients that asked for it.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The replies that wait with a worker's connections.
#[derive(Default)]
pub(crate) struct Replies {
    held: BTreeSet<Arc<[u8]>>,
    bytes: usize,
}

/// A reply that was partly sent.
pub(crate) struct Unread {
    reply: Arc<[u8]>,
    sent: usize,
}

impl Replies {
    /// Keeps a reply with its first `sent` bytes sent.
    pub(crate) fn keep(&mut self, reply: &[u8], sent: usize) -> Unread {
        let reply = match self.held.get(reply) {
            Some(same) => Arc::clone(same),
            None => {
                let reply: Arc<[u8]> = reply.into();
                self.bytes += reply.len();
                self.held.insert(Arc::clone(&reply));
                reply
            }
        };
        Unread { reply, sent }
    }

    /// Forgets bytes that a client has read, or will never read.
    pub(crate) fn forget(&mut self, unread: Unread) {
        // This one's and the set's.
        if Arc::strong_count(&unread.reply) == 2 {
            self.held.remove(&unread.reply);
            self.bytes -= unread.reply.len();
        }
    }

    /// Returns the bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Unread {
    /// Returns the bytes that were not sent yet.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.reply[self.sent..]
    }

    pub(crate) fn advance(&mut self, sent: usize) {
        self.sent += sent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_replies_are_held_once_and_as_long_as_one_waits() {
        let mut replies = Replies::default();
        let mut one = replies.keep(b"VALUE k 0 3", 0);
        let other = replies.keep(b"VALUE k 0 3", 6);
        let third = replies.keep(b"END", 1);
        assert_eq!(replies.bytes(), 11 + 3);
        one.advance(2);
        assert_eq!(
            (one.rest(), other.rest()),
            (&b"LUE k 0 3"[..], &b"k 0 3"[..])
        );
        replies.forget(other);
        assert_eq!(replies.bytes(), 11 + 3);
        replies.forget(one);
        replies.forget(third);
        assert_eq!((replies.bytes(), replies.held.len()), (0, 0));
    }
}
