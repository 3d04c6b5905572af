//! The requests to the store, and its answers.

/// The caller's clock: seconds since a moment of its own, before which nothing was stored. memcached's relative time is
/// the same. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Seconds; at least 1.
    pub seconds: u32,
}

/// The condition for storing a value, and the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    /// In every case.
    Set,
    /// If nothing is there.
    Add,
    /// If something is there.
    Replace,
    /// Behind the present value, whose flags and end stay.
    Append,
    /// Before the present value.
    Prepend,
    /// If the present item has this CAS.
    Cas(u64),
}

/// A value to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// On which condition.
    pub mode: StoreMode,
    /// The key, 1 to [`KEY_BYTES_MAX`](super::KEY_BYTES_MAX) bytes.
    pub key: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// The second from which the value is gone; `None` for never.
    pub expires: Option<u32>,
    /// The value.
    pub value: &'a [u8],
    /// Its new CAS. Default: the next one.
    pub cas_new: Option<u64>,
    /// With [`StoreMode::Cas`]: a CAS below the present one stores the value marked stale, with the end that was set
    /// before. Default false.
    pub invalidates: bool,
    /// With append and prepend: stores the value if there is no item. Default false.
    pub vivifies: bool,
    /// A condition beside the mode's: the present item has this CAS. Default none.
    pub cas: Option<u64>,
}

impl<'a> Store<'a> {
    /// Asks for a value to be stored with no flags, for ever.
    pub fn new(mode: StoreMode, key: &'a [u8], value: &'a [u8]) -> Store<'a> {
        Store {
            mode,
            key,
            flags: 0,
            expires: None,
            value,
            cas_new: None,
            invalidates: false,
            vivifies: false,
            cas: None,
        }
    }
}

/// The outcome of a request to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// The value is stored, with this CAS.
    Stored {
        /// The new CAS.
        cas: u64,
    },
    /// The mode's condition does not hold.
    NotStored,
    /// Another CAS is there.
    Exists,
    /// There is no item to compare with.
    NotFound,
    /// Key and value are longer than an item may be. The old item is gone if the mode was to replace it.
    TooLarge,
    /// There is no room, and none can be made.
    OutOfMemory,
}

/// The changes of a fetch. Default: it counts the access.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fetch {
    /// Sets the end of the item: the outer `None` leaves it, the inner means never.
    pub touch: Option<Option<u32>>,
    /// If there is no item, stores an empty value with this end, and gives the caller the win.
    pub vivify: Option<Option<u32>>,
    /// Gives the win to one caller if fewer seconds than this are left.
    pub recache_below_seconds: Option<u32>,
    /// Leaves the value out, so that nothing is decoded. Default false.
    pub without_value: bool,
    /// Gives the caller the win of an item that is stale, or near its end, if nobody has it. Default false.
    pub may_win: bool,
    /// Leaves no trace of the access. Default false.
    pub leaves_access: bool,
}

/// Whether the caller has to bring a new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Win {
    /// Nobody is asked to.
    None,
    /// The caller has to, from now on.
    Won,
    /// Somebody was asked before.
    Taken,
}

/// A found item.
#[derive(Clone, Copy, Debug)]
pub struct ItemRef<'a> {
    /// The value, decoded; empty if it was not requested.
    pub value: &'a [u8],
    /// Bytes of the value.
    pub value_bytes: usize,
    /// The client's flags.
    pub flags: u32,
    /// Rises with each change of the item.
    pub cas: u64,
    /// The second from which it is gone; `None` for never.
    pub expires: Option<u32>,
    /// Whether it was fetched before.
    pub is_fetched: bool,
    /// The second of the last access before this one, or of storing.
    pub last_access: u32,
    /// Whether it was marked stale.
    pub is_stale: bool,
    /// Whether the caller has to bring a new value.
    pub win: Win,
    /// Whether it was stored by this very fetch.
    pub is_vivified: bool,
    /// Bytes that it takes in memory, without the index.
    pub stored_bytes: usize,
}

impl ItemRef<'_> {
    /// Returns the remaining seconds; `None` for ever.
    pub fn seconds_left(&self, now: Now) -> Option<u32> {
        self.expires
            .map(|expires| expires.saturating_sub(now.seconds))
    }
}

/// How an item is deleted. Default: at once, with any CAS.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delete {
    /// Only if it has this CAS.
    pub cas: Option<u64>,
    /// Marks it stale and lets one caller win instead.
    pub marks_stale: bool,
    /// Sets the end of an item that is marked stale: the outer `None` leaves it.
    pub touch: Option<Option<u32>>,
    /// The CAS that an item marked stale gets. Default: the next one.
    pub cas_new: Option<u64>,
}

/// The outcome of a request to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is gone, or marked stale.
    Deleted,
    /// Nothing is there.
    NotFound,
    /// It has another CAS.
    Exists,
}

/// A change of a decimal number.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// By how much.
    pub delta: u64,
    /// Downwards, where it stops at 0; upwards it wraps at 2^64.
    pub is_decrement: bool,
    /// If there is no item, stores this number, with an end. Default none.
    pub initial: Option<(u64, Option<u32>)>,
    /// Only if the present item has this CAS. Default none.
    pub cas: Option<u64>,
    /// The CAS it gets. Default: the next one.
    pub cas_new: Option<u64>,
    /// Sets the end of the item. Default none.
    pub touch: Option<Option<u32>>,
}

impl Count {
    /// Asks for a number to rise.
    pub fn up(delta: u64) -> Count {
        Count {
            delta,
            is_decrement: false,
            initial: None,
            cas: None,
            cas_new: None,
            touch: None,
        }
    }

    /// Asks for a number to fall.
    pub fn down(delta: u64) -> Count {
        Count {
            is_decrement: true,
            ..Count::up(delta)
        }
    }
}

/// The outcome of a change of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountOutcome {
    /// It has changed.
    Counted {
        /// The number now.
        number: u64,
        /// The new CAS.
        cas: u64,
        /// The end of the item; `None` for never.
        expires: Option<u32>,
        /// Whether it was stored by this very call.
        is_vivified: bool,
    },
    /// Nothing is there.
    NotFound,
    /// The present value is not a number.
    NotNumeric,
    /// The present item has another CAS.
    Exists,
    /// There is no room for its new digits.
    OutOfMemory,
}

/// The outcome of setting an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TouchOutcome {
    /// It is set.
    Touched,
    /// Nothing is there.
    NotFound,
    /// The item has no end to be changed, and there is no room for one.
    OutOfMemory,
}

/// Counts of the store since it began or was reset; those of the present come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectsStats {
    /// Present items, with expired ones that were not yet found.
    pub items: u64,
    /// Stored bytes of their keys, values and headers.
    pub bytes: u64,
    /// Bytes of their keys and values for the client.
    pub bytes_logical: u64,
    /// Items stored in an encoded form.
    pub encoded_items: u64,
    /// The most bytes that may be held.
    pub memory_bytes: u64,
    /// Bytes that are held: slabs, indexes, books.
    pub held_bytes: u64,
    /// Bytes of the indexes.
    pub index_bytes: u64,
    /// Slabs in use.
    pub slabs: u64,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Slabs of new items.
    pub fresh_slabs: u64,
    /// Slabs of items that nobody fetched.
    pub cold_slabs: u64,
    /// Slabs of items that were fetched.
    pub main_slabs: u64,
    /// Slabs of items that are stored raw again because they were decoded often.
    pub hot_slabs: u64,
    /// Items that were stored.
    pub items_total: u64,
    /// Fetches, of present items and others.
    pub fetches: u64,
    /// Items that were dropped before their end to make room.
    pub evictions: u64,
    /// Of these, items that nobody fetched.
    pub evicted_unfetched: u64,
    /// Items found past their end.
    pub expired: u64,
    /// Of these, items that nobody fetched.
    pub expired_unfetched: u64,
    /// Items that were requested by their key past their end.
    pub asked_expired: u64,
    /// Items that were moved to another segment.
    pub moved: u64,
    /// Items that were encoded as they moved.
    pub encoded: u64,
    /// Items that were decoded for a reader.
    pub decoded: u64,
    /// Items that are stored raw again because they were decoded often.
    pub promoted: u64,
    /// Items that reached the end of their queue.
    pub judged: u64,
    /// Of these, items that were fetched before.
    pub judged_fetched: u64,
    /// Bytes of dictionaries, their prepared forms and the samples they are trained on.
    pub dictionary_bytes: u64,
}

impl ObjectsStats {
    /// Adds the counts of another shard.
    pub(super) fn add(&mut self, other: &ObjectsStats) {
        self.items += other.items;
        self.bytes += other.bytes;
        self.bytes_logical += other.bytes_logical;
        self.encoded_items += other.encoded_items;
        self.index_bytes += other.index_bytes;
        self.slabs += other.slabs;
        self.fresh_slabs += other.fresh_slabs;
        self.cold_slabs += other.cold_slabs;
        self.main_slabs += other.main_slabs;
        self.hot_slabs += other.hot_slabs;
        self.items_total += other.items_total;
        self.fetches += other.fetches;
        self.evictions += other.evictions;
        self.evicted_unfetched += other.evicted_unfetched;
        self.expired += other.expired;
        self.expired_unfetched += other.expired_unfetched;
        self.asked_expired += other.asked_expired;
        self.moved += other.moved;
        self.encoded += other.encoded;
        self.decoded += other.decoded;
        self.promoted += other.promoted;
        self.judged += other.judged;
        self.judged_fetched += other.judged_fetched;
    }

    /// Sets the counts of the past back to zero.
    pub(super) fn reset(&mut self) {
        let present = *self;
        *self = ObjectsStats {
            items: present.items,
            bytes: present.bytes,
            bytes_logical: present.bytes_logical,
            encoded_items: present.encoded_items,
            ..ObjectsStats::default()
        };
    }
}
