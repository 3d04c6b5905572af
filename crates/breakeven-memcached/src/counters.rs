//! The counters of a worker. Each has its own, so that no two threads write to one cache line.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A number that one thread raises and every thread may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        // One writer needs no locked instruction.
        self.0
            .store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }
}

macro_rules! counters {
    ($($name:ident)*) => {
        /// The counts of one worker.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Count,)*
            /// The waiting bytes now: replies, and input that is not whole.
            pub(crate) reply_bytes: AtomicUsize,
            pub(crate) input_bytes: AtomicUsize,
        }

        /// The counts of several.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Sums {
            $(pub(crate) $name: u64,)*
        }

        impl Sums {
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.0.load(Relaxed));)*
            }

            /// Returns the counts since then.
            pub(crate) fn since(&self, base: &Sums) -> Sums {
                Sums { $($name: self.$name.wrapping_sub(base.$name),)* }
            }
        }
    };
}

counters! {
    cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses delete_misses delete_hits incr_misses incr_hits
    decr_misses decr_hits cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large store_no_memory
    auth_cmds auth_errors idle_kicks bytes_read bytes_written conn_yields response_obj_oom read_buf_oom
}
