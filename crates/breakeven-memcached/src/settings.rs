//! The settings of the server: its addresses, its memory, and its limits against abuse.

use std::path::PathBuf;

/// Where clients come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A UNIX socket at this path, with these permission bits.
    Unix {
        /// Its path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// TCP at these addresses, each `HOST`, `HOST:PORT` or `[HOST]:PORT`.
    Tcp {
        /// The addresses.
        addresses: Vec<String>,
        /// The port of addresses that name none; 0 for any that is free.
        port: u16,
    },
}

/// How the server runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients come in. Default: TCP port 11211 of this machine's own address 127.0.0.1.
    pub listen: Listen,
    /// Bytes of memory of the store. Default: 64 MiB.
    pub memory_bytes: u64,
    /// The longest item, counted as memcached counts it. Default: 1 MiB.
    pub item_bytes_max: usize,
    /// Worker threads. Default: 4, as memcached has.
    pub threads: usize,
    /// Connections at a time. Default: 1024.
    pub connections_max: usize,
    /// Connections that wait to be accepted. Default: 1024.
    pub backlog: i32,
    /// Requests of one connection after which others have their turn. Default: 20.
    pub requests_per_turn: usize,
    /// Whether items may be dropped to make room. Default true.
    pub evict: bool,
    /// Whether values are encoded as they age. Default true.
    pub encodes: bool,
    /// Whether they are encoded with dictionaries trained on other values. Default true.
    pub has_dictionaries: bool,
    /// The client's cost of a miss, in microseconds; the worth of memory follows from it. Default: 1,000.
    pub miss_microseconds: u32,
    /// Whether `shutdown` stops the server. Default false.
    pub allows_shutdown: bool,
    /// Whether `flush_all` is obeyed. Default true.
    pub allows_flush: bool,
    /// Whether keys may be listed. Default true.
    pub allows_dump: bool,
    /// Seconds after which a silent connection is closed; `None` for never. Default: never.
    pub idle_seconds_max: Option<u32>,
    /// A file of `user:password` lines; a client must send one of them first. Default: none.
    pub login_path: Option<PathBuf>,
    /// How much is said on standard error, 0 to 2. Default: 0.
    pub verbosity: u32,
    /// The end of the prefix of a key in `stats detail`. Default: `:`.
    pub prefix_end: u8,
    /// Whether prefixes are counted from the start. Default false.
    pub counts_prefixes: bool,
    /// A file that is written again every ten seconds with Prometheus's text form. Default: none.
    pub metrics_path: Option<PathBuf>,
    /// A file that holds the process's number while the server runs. Default: none.
    pub pid_path: Option<PathBuf>,
    /// The user to become if root starts it. Default: none.
    pub user: Option<String>,
    /// Whether the pages of the process stay in memory. Default false.
    pub locks_memory: bool,
    /// Whether a core dump may be as large as the process. Default false.
    pub dumps_core: bool,
    /// Whether it goes on in the background. Default false.
    pub is_daemon: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: Listen::Tcp {
                addresses: vec!["127.0.0.1".into()],
                port: 11211,
            },
            memory_bytes: 64 << 20,
            item_bytes_max: 1 << 20,
            threads: 4,
            connections_max: 1024,
            backlog: 1024,
            requests_per_turn: 20,
            evict: true,
            encodes: true,
            has_dictionaries: true,
            miss_microseconds: 1000,
            allows_shutdown: false,
            allows_flush: true,
            allows_dump: true,
            idle_seconds_max: None,
            login_path: None,
            verbosity: 0,
            prefix_end: b':',
            counts_prefixes: false,
            metrics_path: None,
            pid_path: None,
            user: None,
            locks_memory: false,
            dumps_core: false,
            is_daemon: false,
        }
    }
}
