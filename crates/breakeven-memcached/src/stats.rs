//! `stats`: the names that tools read, with the numbers that there are. Names of things that this server does not have
//! are left out, as tools allow. `bytes` are bytes as stored, and `bytes_logical` as clients know them.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use breakeven::decide::fields::{Row, Value};
use breakeven::decide::ledger::LEDGER_FIELDS;
use breakeven::objects::{CLASS_FIELDS, ClassStats};
use breakeven::quoted::quoted;

use crate::admin::VERSION;
use crate::counters::Counters;
use crate::line::Words;
use crate::session::{Context, Next, say};
use crate::settings::{Listen, Settings};
use crate::shared::{Shared, lock};

/// Runs `stats` with its argument.
pub(crate) fn run(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) -> Next {
    let shared = context.shared;
    let fields = match (words.at(1), words.count()) {
        (_, 1) => general(shared, context.now.seconds),
        (b"settings", _) => settings(&shared.settings, shared),
        (b"items", _) => items(shared),
        (b"slabs", _) => slabs(shared),
        (b"sizes", _) => Fields::default().with("sizes_status", "disabled"),
        (b"conns", _) => connections(shared, context.now.seconds),
        (b"breakeven", _) => breakeven(shared),
        (b"reset", _) => {
            shared.reset();
            say(output, "RESET");
            return Next::Command;
        }
        (b"detail", _) => {
            detail(words.at(2), shared, output);
            return Next::Command;
        }
        (b"cachedump", _) => {
            say(
                output,
                match words.count() {
                    _ if !shared.settings.allows_dump => "CLIENT_ERROR stats cachedump not allowed",
                    ..4 => "CLIENT_ERROR bad command line",
                    // The first keys of a class: there are no classes of that kind.
                    _ => "END",
                },
            );
            return Next::Command;
        }
        _ => {
            say(output, "ERROR");
            return Next::Command;
        }
    };
    for (name, value) in &fields.0 {
        output.extend_from_slice(format!("STAT {name} {value}\r\n").as_bytes());
    }
    output.extend_from_slice(b"END\r\n");
    Next::Command
}

/// Names and values, in order.
#[derive(Default)]
pub(crate) struct Fields(pub(crate) Vec<(String, String)>);

impl Fields {
    fn with(mut self, name: impl Display, value: impl Display) -> Fields {
        self.0.push((name.to_string(), value.to_string()));
        self
    }
}

/// The fields of `stats` alone.
pub(crate) fn general(shared: &Shared, now: u32) -> Fields {
    let now = breakeven::objects::Now { seconds: now };
    let (user, system) = processor_time();
    let fields = Fields::default()
        .with("pid", std::process::id())
        .with("uptime", shared.clock.uptime(now))
        .with("time", shared.clock.date(now.seconds))
        .with("version", VERSION)
        .with("pointer_size", usize::BITS)
        .with("rusage_user", user)
        .with("rusage_system", system)
        .with("max_connections", shared.settings.connections_max)
        .with("curr_connections", shared.connections.load(Relaxed))
        .with("total_connections", shared.connections_total.load(Relaxed))
        .with(
            "rejected_connections",
            shared.connections_rejected.load(Relaxed),
        )
        .with("connection_structures", lock(&shared.peers).len());
    with_memory(with_commands(fields, shared), shared)
}

fn with_commands(fields: Fields, shared: &Shared) -> Fields {
    let sums = shared.sums();
    let held = |of: fn(&Counters) -> &AtomicUsize| {
        let workers = shared.workers.iter();
        workers.map(|it| of(it).load(Relaxed)).sum::<usize>()
    };
    fields
        .with("response_obj_oom", sums.response_obj_oom)
        .with("response_obj_bytes", held(|it| &it.reply_bytes))
        .with("read_buf_bytes", held(|it| &it.input_bytes))
        .with("read_buf_oom", sums.read_buf_oom)
        .with("cmd_get", sums.cmd_get)
        .with("cmd_set", sums.cmd_set)
        .with("cmd_flush", sums.cmd_flush)
        .with("cmd_touch", sums.cmd_touch)
        .with("cmd_meta", sums.cmd_meta)
        .with("get_hits", sums.get_hits)
        .with("get_misses", sums.get_misses)
        .with("delete_misses", sums.delete_misses)
        .with("delete_hits", sums.delete_hits)
        .with("incr_misses", sums.incr_misses)
        .with("incr_hits", sums.incr_hits)
        .with("decr_misses", sums.decr_misses)
        .with("decr_hits", sums.decr_hits)
        .with("cas_misses", sums.cas_misses)
        .with("cas_hits", sums.cas_hits)
        .with("cas_badval", sums.cas_badval)
        .with("touch_hits", sums.touch_hits)
        .with("touch_misses", sums.touch_misses)
        .with("store_too_large", sums.store_too_large)
        .with("store_no_memory", sums.store_no_memory)
        .with("auth_cmds", sums.auth_cmds)
        .with("auth_errors", sums.auth_errors)
        .with("idle_kicks", sums.idle_kicks)
        .with("bytes_read", sums.bytes_read)
        .with("bytes_written", sums.bytes_written)
        .with("conn_yields", sums.conn_yields)
}

fn with_memory(fields: Fields, shared: &Shared) -> Fields {
    let stats = shared.objects.stats();
    fields
        .with("limit_maxbytes", shared.memory_bytes.load(Relaxed))
        .with("accepting_conns", 1)
        .with("listen_disabled_num", shared.accepts_disabled.load(Relaxed))
        .with(
            "time_in_listen_disabled_us",
            shared.accepts_disabled_microseconds.load(Relaxed),
        )
        .with("threads", shared.settings.threads)
        .with("hash_bytes", stats.index_bytes)
        .with("bytes", stats.bytes)
        .with("bytes_logical", stats.bytes_logical)
        .with("curr_items", stats.items)
        .with("total_items", stats.items_total)
        .with("evictions", stats.evictions)
        .with("evicted_unfetched", stats.evicted_unfetched)
        .with("reclaimed", stats.expired)
        .with("expired_unfetched", stats.expired_unfetched)
        .with("get_expired", stats.asked_expired)
        // Flushed items go at once, so that nobody meets them.
        .with("get_flushed", 0)
}

fn breakeven(shared: &Shared) -> Fields {
    let stats = shared.objects.stats();
    let fields = Fields::default()
        .with("items", stats.items)
        .with("items_encoded", stats.encoded_items)
        .with("bytes_logical", stats.bytes_logical)
        .with("bytes_stored", stats.bytes)
        .with("bytes_held", stats.held_bytes)
        .with("bytes_index", stats.index_bytes)
        .with("bytes_limit", stats.memory_bytes)
        .with("slabs", stats.slabs)
        .with("slab_bytes", stats.slab_bytes)
        .with("slabs_fresh", stats.fresh_slabs)
        .with("slabs_cold", stats.cold_slabs)
        .with("slabs_main", stats.main_slabs)
        .with("slabs_hot", stats.hot_slabs)
        .with("items_moved", stats.moved)
        .with("items_encoded_total", stats.encoded)
        .with("items_decoded_total", stats.decoded)
        .with("items_promoted_total", stats.promoted)
        .with("items_judged_total", stats.judged)
        .with("items_judged_fetched_total", stats.judged_fetched)
        .with("bytes_dictionaries", stats.dictionary_bytes);
    with_classes(with_ledger(fields, shared), shared)
}

/// The earnings of compression, in seconds of clients and cores.
fn with_ledger(mut fields: Fields, shared: &Shared) -> Fields {
    let stats = shared.objects.ledger().stats();
    for field in LEDGER_FIELDS.fields() {
        fields = fields.with(
            format!("ledger_{}", field.key()),
            value((field.value)(&stats)),
        );
    }
    fields
}

fn with_classes(mut fields: Fields, shared: &Shared) -> Fields {
    for class in shared.objects.classes() {
        let name = &class.name;
        fields = fields.with(format!("class:{name}:method"), class.method);
        if let Some(runner_up) = class.runner_up {
            fields = fields.with(format!("class:{name}:runner_up"), runner_up);
        }
        for field in CLASS_FIELDS.fields() {
            let key = format!("class:{name}:{}", field.key());
            fields = fields.with(key, value((field.value)(&class)));
        }
    }
    fields
}

fn value(value: Value) -> String {
    match value {
        Value::Count(count) => count.to_string(),
        Value::Real(real) => format!("{real:.6}"),
        Value::Unknown => "-".into(),
    }
}

/// All items are of one class, which is called 1.
fn items(shared: &Shared) -> Fields {
    let stats = shared.objects.stats();
    if stats.items == 0 {
        return Fields::default();
    }
    Fields::default()
        .with("items:1:number", stats.items)
        .with("items:1:mem_requested", stats.bytes)
        .with("items:1:evicted", stats.evictions)
        .with("items:1:evicted_unfetched", stats.evicted_unfetched)
        .with("items:1:reclaimed", stats.expired)
        .with("items:1:expired_unfetched", stats.expired_unfetched)
}

/// A chunk holds one item: here it is the mean item's part of the slabs.
fn slabs(shared: &Shared) -> Fields {
    let stats = shared.objects.stats();
    let sums = shared.sums();
    let chunk_bytes = (stats.slabs * stats.slab_bytes).div_ceil(stats.items.max(1));
    Fields::default()
        .with("1:chunk_size", chunk_bytes)
        .with(
            "1:chunks_per_page",
            stats.items.div_ceil(stats.slabs.max(1)),
        )
        .with("1:total_pages", stats.slabs)
        .with("1:total_chunks", stats.items)
        .with("1:used_chunks", stats.items)
        .with("1:free_chunks", 0)
        .with("1:mem_requested", stats.bytes)
        .with("1:get_hits", sums.get_hits)
        .with("1:cmd_set", sums.cmd_set)
        .with("1:delete_hits", sums.delete_hits)
        .with("1:incr_hits", sums.incr_hits)
        .with("1:decr_hits", sums.decr_hits)
        .with("1:cas_hits", sums.cas_hits)
        .with("1:cas_badval", sums.cas_badval)
        .with("1:touch_hits", sums.touch_hits)
        .with("active_slabs", 1)
        .with("total_malloced", stats.held_bytes)
}

fn settings(settings: &Settings, shared: &Shared) -> Fields {
    let yes = |is: bool| if is { "yes" } else { "no" };
    let (port, host, socket, mode) = match &settings.listen {
        Listen::Tcp { addresses, port } => (*port, addresses.join(","), "NULL".into(), 0o700),
        Listen::Unix { path, mode } => (0, "NULL".into(), quoted(&path).to_string(), *mode),
    };
    Fields::default()
        .with("maxbytes", shared.memory_bytes.load(Relaxed))
        .with("maxconns", settings.connections_max)
        .with("tcpport", port)
        .with("udpport", 0)
        .with("inter", host)
        .with("verbosity", shared.verbosity.load(Relaxed))
        .with("evictions", if settings.evict { "on" } else { "off" })
        .with("domain_socket", socket)
        .with("umask", format!("{mode:o}"))
        .with("shutdown_command", yes(settings.allows_shutdown))
        .with("num_threads", settings.threads)
        .with("stat_key_prefix", char::from(settings.prefix_end))
        .with("detail_enabled", yes(shared.counts_prefixes()))
        .with("reqs_per_event", settings.requests_per_turn)
        .with("cas_enabled", "yes")
        .with("tcp_backlog", settings.backlog)
        .with("binding_protocol", "ascii")
        .with("auth_enabled_sasl", "no")
        .with("auth_enabled_ascii", yes(settings.login_path.is_some()))
        .with("item_size_max", settings.item_bytes_max)
        .with("maxconns_fast", "yes")
        .with("flush_enabled", yes(settings.allows_flush))
        .with("dump_enabled", yes(settings.allows_dump))
        .with("idle_timeout", settings.idle_seconds_max.unwrap_or(0))
        .with("track_sizes", "no")
}

fn connections(shared: &Shared, now: u32) -> Fields {
    let mut fields = Fields::default();
    for (number, peer) in lock(&shared.peers).iter() {
        fields = fields.with(format!("{number}:addr"), &peer.address);
        if peer.is_listener {
            fields = fields.with(format!("{number}:state"), "conn_listening");
        } else {
            let state = match peer.is_sending_value.load(Relaxed) {
                true => "conn_nread",
                // The command that asks is being worked on; the others wait for theirs.
                false => "conn_parse_cmd",
            };
            fields = fields
                .with(format!("{number}:listen_addr"), &peer.listen_address)
                .with(format!("{number}:state"), state);
        }
        let idle = now.saturating_sub(peer.last_command.load(Relaxed));
        fields = fields.with(format!("{number}:secs_since_last_cmd"), idle);
    }
    fields
}

fn detail(word: &[u8], shared: &Shared, output: &mut Vec<u8>) {
    match word {
        b"on" | b"off" => {
            shared.set_counts_prefixes(word == b"on");
            say(output, "OK");
        }
        b"dump" => {
            for (prefix, counts) in lock(&shared.prefixes).iter() {
                output.extend_from_slice(b"PREFIX ");
                output.extend_from_slice(prefix);
                let (gets, hits, sets, deletes) =
                    (counts.gets, counts.hits, counts.sets, counts.deletes);
                say(
                    output,
                    &format!(" get {gets} hit {hits} set {sets} del {deletes}"),
                );
            }
            say(output, "END");
        }
        _ => say(output, "CLIENT_ERROR usage: stats detail on|off|dump"),
    }
}

/// Seconds of processor time that the process has used, its own and the system's.
fn processor_time() -> (String, String) {
    // The 14th and 15th field, behind a name that may hold anything but ends with the last parenthesis.
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let seconds = |at: usize| {
        let used: u64 = fields
            .get(at)
            .and_then(|field| field.parse().ok())
            .unwrap_or(0);
        format!("{}.{:06}", used / ticks, used % ticks * 1_000_000 / ticks)
    };
    (seconds(11), seconds(12))
}

/// The numbers of `stats` in Prometheus's text form.
pub(crate) fn prometheus(shared: &Shared, now: u32) -> String {
    let mut text = String::new();
    for (name, value) in general(shared, now).0 {
        if value.parse::<f64>().is_ok() {
            text += &format!(
                "# TYPE breakeven_memcached_{name} untyped\nbreakeven_memcached_{name} {value}\n"
            );
        }
    }
    let place = [
        ("place", "objects".to_string()),
        ("cost_unit", "seconds".to_string()),
    ];
    text += &shared.objects.ledger().prometheus(&place);
    let classes = shared.objects.classes();
    let labels = |class: &ClassStats| {
        let method = ("method", class.method.to_string());
        [("class", class.name.clone()), method]
    };
    let labels: Vec<_> = classes.iter().map(labels).collect();
    let rows = classes.iter().zip(&labels);
    let rows: Vec<_> = rows.map(|(stats, labels)| Row { labels, stats }).collect();
    text + &CLASS_FIELDS.prometheus(&rows)
}
