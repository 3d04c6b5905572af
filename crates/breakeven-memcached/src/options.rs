//! memcached's option letters, read as `getopt` reads them, so that a command line that starts memcached starts this.
//!
//! An absent option that would change the place of data, its readers or its protocol is refused with a sentence. An
//! option that only tunes memcached's own tables is accepted, with a warning where the user might expect an effect.

use crate::settings::{Listen, Settings};

/// The letters, the long names, and whether a value follows.
const OPTIONS: &[(char, &str, bool)] = &[
    ('p', "port", true),
    ('U', "udp-port", true),
    ('s', "unix-socket", true),
    ('a', "unix-mask", true),
    ('A', "enable-shutdown", false),
    ('l', "listen", true),
    ('d', "daemon", false),
    ('r', "enable-coredumps", false),
    ('u', "user", true),
    ('m', "memory-limit", true),
    ('M', "disable-evictions", false),
    ('c', "conn-limit", true),
    ('k', "lock-memory", false),
    ('v', "verbose", false),
    ('h', "help", false),
    ('i', "license", false),
    ('V', "version", false),
    ('P', "pidfile", true),
    ('f', "slab-growth-factor", true),
    ('n', "slab-min-size", true),
    ('L', "enable-largepages", false),
    ('D', "prefix-delimiter", true),
    ('t', "threads", true),
    ('R', "max-reqs-per-event", true),
    ('C', "disable-cas", false),
    ('b', "listen-backlog", true),
    ('B', "protocol", true),
    ('I', "max-item-size", true),
    ('S', "enable-sasl", false),
    ('F', "disable-flush-all", false),
    ('X', "disable-dumping", false),
    ('W', "disable-watch", false),
    ('Y', "auth-file", true),
    ('e', "memory-file", true),
    ('Z', "enable-ssl", false),
    ('N', "napi_ids", true),
    ('o', "extended", true),
    // Ours alone, without a letter.
    ('\u{1}', "metrics", true),
];

/// Words of `-o` that tune absent parts, and change nothing that a client sees.
const TUNING: &[&str] = &[
    "maxconns_fast",
    "no_maxconns_fast",
    "hashpower",
    "hash_algorithm",
    "no_hashexpand",
    "lru_crawler",
    "no_lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "no_lru_maintainer",
    "hot_lru_pct",
    "warm_lru_pct",
    "hot_max_factor",
    "warm_max_factor",
    "temporary_ttl",
    "slab_reassign",
    "no_slab_reassign",
    "slab_automove",
    "slab_automove_window",
    "slab_chunk_max",
    "modern",
    "no_modern",
    "relaxed_privileges",
    "tail_repair_time",
    "inline_ascii_response",
    "no_inline_ascii_response",
    "read_buf_mem_limit",
    "resp_obj_mem_limit",
    "watcher_logbuf_size",
    "worker_logbuf_size",
    "slab_automove_ratio",
    "slab_automove_freeratio",
    "temp_lru",
    "no_lru_bumps",
];

/// The request of a command line.
#[derive(Debug)]
pub enum Asked {
    /// To serve, and the messages before.
    Serve {
        /// How to serve.
        settings: Box<Settings>,
        /// The options without an effect, a sentence each.
        warnings: Vec<String>,
    },
    /// To print this.
    Print(String),
}

/// Reads a command line, without the program's name.
///
/// # Errors
/// A sentence about the word that is not understood or not supported.
pub fn read(arguments: &[String]) -> Result<Asked, String> {
    let mut draft = Draft {
        settings: Settings::default(),
        warnings: Vec::new(),
        port: None,
        hosts: Vec::new(),
        socket: None,
        mode: 0o700,
        item_bytes: None,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            break;
        }
        let mut value_after = |name: &str| {
            let value = arguments.next().cloned();
            value.ok_or_else(|| format!("option {name} wants a value"))
        };
        if let Some(long) = argument.strip_prefix("--") {
            let (name, value) = long
                .split_once('=')
                .map_or((long, None), |(name, value)| (name, Some(value)));
            let known = OPTIONS.iter().find(|(_, known, _)| *known == name);
            let Some((letter, _, takes)) = known else {
                return Err(format!("unknown option --{name}"));
            };
            let value = match (takes, value) {
                (true, Some(value)) => value.to_string(),
                (true, None) => value_after(argument)?,
                (false, None) => String::new(),
                (false, Some(_)) => return Err(format!("option --{name} takes no value")),
            };
            if let Some(text) = draft.take(*letter, &value)? {
                return Ok(Asked::Print(text));
            }
            continue;
        }
        let Some(letters) = argument
            .strip_prefix('-')
            .filter(|letters| !letters.is_empty())
        else {
            return Err(format!("{argument} is no option"));
        };
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            let known = OPTIONS
                .iter()
                .find(|(known, _, _)| *known == letter && letter > '\u{1}');
            let Some((_, _, takes)) = known else {
                return Err(format!("unknown option -{letter}"));
            };
            let value = match takes {
                true if rest.as_str().is_empty() => value_after(&format!("-{letter}"))?,
                true => std::mem::replace(&mut rest, "".chars())
                    .as_str()
                    .to_string(),
                false => String::new(),
            };
            if let Some(text) = draft.take(letter, &value)? {
                return Ok(Asked::Print(text));
            }
        }
    }
    draft.finish()
}

struct Draft {
    settings: Settings,
    warnings: Vec<String>,
    port: Option<u16>,
    hosts: Vec<String>,
    socket: Option<String>,
    mode: u32,
    item_bytes: Option<usize>,
}

impl Draft {
    /// Takes an option; returns the text to print instead of serving.
    fn take(&mut self, letter: char, value: &str) -> Result<Option<String>, String> {
        let settings = &mut self.settings;
        match letter {
            'p' => self.port = Some(number(letter, value, 0, u16::MAX.into())? as u16),
            's' => self.socket = Some(value.to_string()),
            'a' => {
                let mode = u32::from_str_radix(value, 8)
                    .ok()
                    .filter(|mode| *mode <= 0o777);
                self.mode =
                    mode.ok_or_else(|| format!("-a {value}: permission bits in octal are wanted"))?;
            }
            'A' => settings.allows_shutdown = true,
            'l' => self.hosts.extend(
                value
                    .split(',')
                    .filter(|host| !host.is_empty())
                    .map(String::from),
            ),
            'd' => settings.is_daemon = true,
            'r' => settings.dumps_core = true,
            'u' => settings.user = Some(value.to_string()),
            'm' => settings.memory_bytes = number(letter, value, 1, 1 << 40)? << 20,
            'M' => settings.evict = false,
            'c' => settings.connections_max = number(letter, value, 1, 1 << 24)? as usize,
            'k' => settings.locks_memory = true,
            'v' => settings.verbosity = (settings.verbosity + 1).min(2),
            'h' => return Ok(Some(help())),
            'V' => return Ok(Some(format!("memcached {}\n", crate::admin::VERSION))),
            'i' => return Ok(Some("breakeven: MIT OR Apache-2.0\n".into())),
            'P' => settings.pid_path = Some(value.into()),
            'D' => {
                let [end] = value.as_bytes() else {
                    return Err(format!("-D {value}: one character is wanted"));
                };
                settings.prefix_end = *end;
                settings.counts_prefixes = true;
            }
            't' => settings.threads = number(letter, value, 1, 1024)? as usize,
            'R' => settings.requests_per_turn = number(letter, value, 1, 1 << 31)? as usize,
            'b' => settings.backlog = number(letter, value, 1, i32::MAX as u64)? as i32,
            'I' => self.item_bytes = Some(item_bytes(value)?),
            'F' => settings.allows_flush = false,
            'X' => settings.allows_dump = false,
            'Y' => settings.login_path = Some(value.into()),
            '\u{1}' => settings.metrics_path = Some(value.into()),
            'o' => {
                for word in value.split(',').filter(|word| !word.is_empty()) {
                    self.extended(word)?;
                }
            }
            _ => self.foreign(letter, value)?,
        }
        Ok(None)
    }

    /// Options of memcached that have no like here: those without danger warn, the others are refused.
    fn foreign(&mut self, letter: char, value: &str) -> Result<(), String> {
        let refused = match letter {
            'U' if value.trim() == "0" => return Ok(()),
            'U' => {
                "-U: UDP is not served, because it amplifies requests of a forged sender; use TCP"
            }
            'B' if ["ascii", "auto"].contains(&value) => return Ok(()),
            'B' => {
                "-B: the binary protocol is not served; the meta commands of the text protocol replace it"
            }
            'S' => {
                "-S: SASL belongs to the binary protocol, which is not served; -Y FILE asks for user and password"
            }
            'Z' => "-Z: TLS is not served; put stunnel before the server",
            'e' => "-e: memory files are not supported: the store does not outlive the process",
            'N' => "-N: the server spreads connections over its threads by itself",
            _ => {
                let tuned = match letter {
                    'f' | 'n' => "there are no slab classes",
                    'C' => "CAS is always on; it takes no memory that could be saved",
                    'L' => "the system chooses its page size",
                    // Nothing can be watched in any case.
                    _ => return Ok(()),
                };
                self.warnings
                    .push(format!("-{letter} has no effect: {tuned}"));
                return Ok(());
            }
        };
        Err(refused.into())
    }

    fn extended(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "idle_timeout" => {
                let seconds = number('o', value, 0, u32::MAX.into())? as u32;
                self.settings.idle_seconds_max = Some(seconds).filter(|seconds| *seconds > 0);
            }
            "no_compression" => self.settings.encodes = false,
            "no_dictionaries" => self.settings.has_dictionaries = false,
            "miss_microseconds" => {
                let most = 1_000_000_000;
                self.settings.miss_microseconds = number('o', value, 1, most)? as u32;
            }
            name if TUNING.contains(&name) => {}
            name if name.starts_with("ext_") => {
                return Err(format!(
                    "-o {name}: there is no flash tier; all values are held in memory"
                ));
            }
            name if name.starts_with("ssl_") || name.starts_with("proxy_") => {
                return Err(format!(
                    "-o {name}: this server has neither TLS nor the proxy"
                ));
            }
            name => self
                .warnings
                .push(format!("-o {name} is not known and has no effect")),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Asked, String> {
        let settings = &mut self.settings;
        match (self.socket, self.hosts) {
            (Some(path), _) => {
                settings.listen = Listen::Unix {
                    path: path.into(),
                    mode: self.mode,
                }
            }
            (None, hosts) => {
                let addresses = if hosts.is_empty() {
                    vec!["127.0.0.1".into()]
                } else {
                    hosts
                };
                settings.listen = Listen::Tcp {
                    addresses,
                    port: self.port.unwrap_or(11211),
                };
            }
        }
        let half = usize::try_from(settings.memory_bytes / 2).unwrap_or(usize::MAX);
        match self.item_bytes {
            Some(bytes) if bytes > half => {
                return Err(format!(
                    "-I: an item of {bytes} bytes is more than half of the memory, {half} bytes"
                ));
            }
            Some(bytes) => settings.item_bytes_max = bytes,
            None => settings.item_bytes_max = settings.item_bytes_max.min(half),
        }
        Ok(Asked::Serve {
            settings: Box::new(self.settings),
            warnings: self.warnings,
        })
    }
}

fn number(letter: char, value: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = value
        .trim()
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("-{letter} {value}: a number of {least} to {most} is wanted"))
}

/// Reads a size in bytes, `k` or `m`, of 1 KiB to 1 GiB as memcached has it.
fn item_bytes(value: &str) -> Result<usize, String> {
    let (digits, shift) = match value.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']) {
        digits if digits.len() == value.len() => (digits, 0),
        digits => (
            digits,
            match &value[digits.len()..] {
                "k" | "K" => 10,
                "m" | "M" => 20,
                "g" | "G" => 30,
                _ => 64,
            },
        ),
    };
    let bytes = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1_u64.checked_shl(shift)?));
    let bytes = bytes.filter(|bytes| (1 << 10..=1 << 30).contains(bytes));
    bytes
        .map(|bytes| bytes as usize)
        .ok_or_else(|| format!("-I {value}: a size of 1k to 1024m is wanted"))
}

fn help() -> String {
    let mut text = format!(
        "breakeven serve {}: a memcached that compresses its values\n\n",
        crate::admin::VERSION
    );
    let says = |letter: char| match letter {
        'p' => "TCP port (default 11211)",
        's' => "serve a UNIX socket instead",
        'a' => "permission bits of the UNIX socket, in octal (default 700)",
        'A' => "let the command shutdown stop the server",
        'l' => "addresses, with or without ports, between commas (default 127.0.0.1)",
        'd' => "go on in the background",
        'r' => "allow core dumps as large as the process",
        'u' => "the user to become when root starts it",
        'm' => "memory in MiB (default 64)",
        'M' => "refuse values when memory is full, instead of dropping others",
        'c' => "connections at a time (default 1024)",
        'k' => "keep all pages in memory",
        'v' => "say more on standard error; twice for commands",
        'h' => "print this",
        'V' => "print the version",
        'i' => "print the licence",
        'P' => "write the process's number to a file",
        'D' => "end of a key's prefix in stats detail, which it turns on (default :)",
        't' => "worker threads (default 4)",
        'R' => "requests of one connection before others have their turn (default 20)",
        'b' => "connections that may wait to be accepted (default 1024)",
        'I' => "longest item, in bytes, k or m (default 1m)",
        'F' => "refuse flush_all",
        'X' => "refuse lists of all keys",
        'W' => "refuse watch, which this server lacks in any case",
        'Y' => "a file of USER:PASSWORD lines; a client must send one first",
        'o' => {
            "words between commas: no_dictionaries, no_compression, miss_microseconds=NUMBER (the cost of a miss to \
             its client, default 1000), idle_timeout=SECONDS; others of memcached's have no effect"
        }
        '\u{1}' => "write Prometheus's text form to a file every ten seconds",
        _ => "",
    };
    for (letter, name, takes) in OPTIONS {
        let what = says(*letter);
        if !what.is_empty() {
            let short = if *letter > '\u{1}' {
                format!("-{letter},")
            } else {
                "   ".into()
            };
            let long = format!("--{name}{}", if *takes { "=<value>" } else { "" });
            text += &format!("{short} {long:<31} {what}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> Result<Settings, String> {
        let arguments: Vec<String> = line
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(String::from)
            .collect();
        match read(&arguments)? {
            Asked::Serve { settings, .. } => Ok(*settings),
            Asked::Print(text) => Err(text),
        }
    }

    #[test]
    fn letters_are_read_as_getopt_reads_them() {
        let read =
            settings("-m1024 -t 2 -vvA -c100 --port=7 --listen localhost,[::1]:8 -I 2m").unwrap();
        assert_eq!(read.memory_bytes, 1 << 30);
        assert_eq!(
            (read.threads, read.verbosity, read.connections_max),
            (2, 2, 100)
        );
        assert!(read.allows_shutdown);
        assert_eq!(read.item_bytes_max, 2 << 20);
        let addresses = vec!["localhost".into(), "[::1]:8".into()];
        assert_eq!(read.listen, Listen::Tcp { addresses, port: 7 });
        let read = settings("-s socket -a 770 -M").unwrap();
        assert_eq!(
            read.listen,
            Listen::Unix {
                path: "socket".into(),
                mode: 0o770
            }
        );
        assert!(!read.evict);
        assert_eq!(settings("-m 1").unwrap().item_bytes_max, 512 << 10);
    }

    #[test]
    fn what_is_not_here_is_refused() {
        let check = |line: &str, word: &str| {
            let error = settings(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        };
        check("-U 11211", "UDP");
        check("-B binary", "binary");
        check("-S", "SASL");
        check("-Z", "stunnel");
        check("-o ext_path=f:1G", "flash");
        check("-I 900m", "half");
        check("-t 0", "-t 0");
        check("-m", "wants a value");
        check("-j", "unknown");
        check("--what", "unknown");
        check("x", "no option");
        check("-h", "unix-socket");
        for line in ["-U 0", "-B ascii", "-o modern,nothing=3", "-f 1.25", ""] {
            settings(line).unwrap();
        }
    }
}
