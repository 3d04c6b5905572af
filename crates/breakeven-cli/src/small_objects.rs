//! `breakeven advise --memcached` and `--values`: the effect of compressing the small objects of a running memcached,
//! or of a file.
//!
//! It reads only keys, some values and the counters of a server. It uses the commands that leave no trace in the
//! server's order of eviction (`lru_crawler metadump`, `mg` with `u`).

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use breakeven::codec::Method;
use breakeven::objects::{ClassForecast, Forecast, Prospect, Sampled, predict};
use breakeven::quoted::quoted;
use breakeven_cli::text::{figures, percent, printable};
use breakeven_memcached::client::Client;
use serde_json::json;

use crate::options::AdviseOptions;

/// The most values that are looked at, and their bytes.
const SAMPLE_VALUES: usize = 20_000;
const SAMPLE_BYTES: usize = 64 << 20;
/// Values that are asked for at once.
const BATCH: usize = 100;
/// A gain below this is not worth another server.
const WORTH_WHILE: f64 = 1.1;
/// Rows of classes that are shown.
const ROWS: usize = 16;

/// The facts about a cache.
struct Cache {
    title: String,
    sample: Vec<Sampled>,
    items: u64,
    prospect: Prospect,
    /// Where reads and shares come from.
    use_source: &'static str,
}

/// Runs the command.
pub fn run(typed: &AdviseOptions) -> Result<ExitCode> {
    let usual = Prospect {
        miss_microseconds: (typed.miss * 1e6).round().min(f64::from(u32::MAX)) as u32,
        reads_per_write: f64::midpoint(typed.reads.0, typed.reads.1),
        memory_bytes: typed.memory.unwrap_or(Prospect::default().memory_bytes),
        ..Prospect::default()
    };
    let cache = match (&typed.memcached, &typed.values) {
        (Some(address), _) => of_server(address, usual, typed.seed)?,
        (None, Some(path)) => of_file(path, usual)?,
        (None, None) => bail!("neither a server nor a file"),
    };
    let forecast = predict(&cache.sample, &cache.prospect)?;
    let text = match typed.json {
        true => serde_json::to_string_pretty(&to_json(&cache, &forecast))? + "\n",
        false => screen(&cache, &forecast),
    };
    crate::standard::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// Reads lines that are values, or a key, a tab and a value.
fn of_file(path: &Path, prospect: Prospect) -> Result<Cache> {
    let bytes = fs::read(path).with_context(|| format!("read {}", quoted(&path)))?;
    let mut sample = Vec::new();
    let (mut items, mut taken) = (0, 0);
    let lines = bytes.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !line.is_empty()) {
        items += 1;
        let tab = line.iter().position(|byte| *byte == b'\t');
        let (key, value) = match tab.filter(|at| (1..=250).contains(at)) {
            Some(at) => (line[..at].to_vec(), &line[at + 1..]),
            None => (format!("value:{items:08}").into_bytes(), line),
        };
        if sample.len() < SAMPLE_VALUES && taken < SAMPLE_BYTES {
            taken += value.len();
            sample.push(Sampled {
                key: key.into(),
                value: value.into(),
            });
        }
    }
    ensure!(
        !sample.is_empty(),
        "{}: no line of it is a value",
        quoted(&path)
    );
    Ok(Cache {
        title: printable(&quoted(&path).to_string()),
        sample,
        items,
        prospect,
        use_source: "assumed; --reads",
    })
}

/// Reads the keys of a server and the values of some of them.
fn of_server(address: &str, usual: Prospect, seed: u64) -> Result<Cache> {
    let mut client = Client::connect(address).with_context(|| format!("connect to {address}"))?;
    let stats = client.stats("")?;
    let number = |name: &str| stats.get(name).and_then(|text| text.parse::<u64>().ok());
    let (keys, fetched_share) = keys(&mut client, seed)?;
    let mut sample = Vec::new();
    let mut bytes = 0;
    for some in keys.chunks(BATCH) {
        if bytes >= SAMPLE_BYTES {
            break;
        }
        let found = values(&mut client, some)?;
        bytes += found.iter().map(|it| it.value.len()).sum::<usize>();
        sample.extend(found);
    }
    ensure!(!sample.is_empty(), "{address} holds no readable item");
    let sets = number("cmd_set").filter(|sets| *sets > 0);
    let evictions = number("evictions").filter(|count| *count >= 1000);
    // Where nothing was evicted, more memory gives no more hits.
    let gets = evictions.and(number("get_hits").zip(number("get_misses")));
    let gets = gets.filter(|(hits, misses)| hits + misses > 0);
    let unfetched =
        evictions.and_then(|count| Some(number("evicted_unfetched")? as f64 / count as f64));
    let prospect = Prospect {
        memory_bytes: number("limit_maxbytes").unwrap_or(usual.memory_bytes),
        // The share among items that are still there, where hardly any were evicted.
        fetched_share: unfetched
            .map_or(fetched_share, |share| 1.0 - share)
            .clamp(0.0, 1.0),
        reads_per_write: match sets {
            Some(sets) => number("get_hits").unwrap_or(0) as f64 / sets as f64,
            None => usual.reads_per_write,
        },
        hit_share: gets.map(|(hits, misses)| hits as f64 / (hits + misses) as f64),
        ..usual
    };
    let version = stats.get("version").map_or("", String::as_str);
    Ok(Cache {
        title: printable(&format!("{address}, {version}")),
        sample,
        items: number("curr_items").unwrap_or(0),
        prospect,
        use_source: "its own counters",
    })
}

/// Lists the keys of a server, keeps some drawn at random, and returns the share of its items that was fetched.
fn keys(client: &mut Client, seed: u64) -> Result<(Vec<Vec<u8>>, f64)> {
    client.send(b"lru_crawler metadump all\r\n")?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let (mut seen, mut fetched) = (0_u64, 0_u64);
    loop {
        let line = client.line()?;
        let mut words = line.split(' ');
        match words.next().and_then(|word| word.split_once('=')) {
            Some(("key", key)) => {
                seen += 1;
                fetched += u64::from(words.any(|word| word == "fetch=yes"));
                // Each key seen is as likely to be kept (Vitter 1985, algorithm R).
                let place = random.u64(..seen) as usize;
                let key = || decoded(key);
                if kept.len() < SAMPLE_VALUES {
                    kept.extend(key());
                } else if let (true, Some(key)) = (place < SAMPLE_VALUES, key()) {
                    kept[place] = key;
                }
            }
            _ if line == "END" => break,
            _ => bail!("the server lists no keys: {}", printable(&line)),
        }
    }
    Ok((kept, fetched as f64 / seen.max(1) as f64))
}

/// Decodes a key from its form in a web address; `None` if no command could name it.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        key.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    let can_be_named = key.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    (can_be_named && (1..=250).contains(&key.len())).then_some(key)
}

/// Asks for the values of some keys; keys that are gone by now are left out.
fn values(client: &mut Client, keys: &[Vec<u8>]) -> Result<Vec<Sampled>> {
    let mut request = Vec::new();
    for key in keys {
        request.extend_from_slice(&[b"mg ", &key[..], b" v u\r\n"].concat());
    }
    client.send(&request)?;
    let mut found = Vec::new();
    for key in keys {
        let value = client.reply(|reply| match (reply.value, reply.line) {
            (Some(value), _) => Ok(Some(Box::from(value))),
            (None, line) if line.starts_with(b"EN") => Ok(None),
            (None, other) => Err(printable(&String::from_utf8_lossy(other))),
        })?;
        match value {
            Ok(value) => found.extend(value.map(|value| Sampled {
                key: key[..].into(),
                value,
            })),
            Err(other) => bail!("the server has no meta protocol: {other}"),
        }
    }
    Ok(found)
}

fn screen(cache: &Cache, forecast: &Forecast) -> String {
    let gain = forecast.items_per_gib / forecast.items_per_gib_memcached;
    let raw_gain = forecast.items_per_gib_raw / forecast.items_per_gib_memcached;
    let sentence = match (
        forecast.items_per_gib / forecast.items_per_gib_raw >= WORTH_WHILE,
        raw_gain >= WORTH_WHILE,
    ) {
        (true, _) => format!(
            "Compress: the same memory would hold {gain:.1} times as many items as memcached does, {raw_gain:.1} times\n\
             with values raw."
        ),
        (false, true) => format!(
            "Leave values raw: they hardly shrink. The same memory would hold {gain:.1} times as many items as\n\
             memcached does, by smaller headers."
        ),
        (false, false) => format!(
            "Do nothing: the same memory would hold {gain:.1} times as many items as memcached does."
        ),
    };
    let bytes: usize = cache.sample.iter().map(|it| it.value.len()).sum();
    let per_gib = |items: f64| format!("{:.2} million", items / 1e6);
    let prospect = &cache.prospect;
    let mut text = format!(
        "{sentence}\n\n\
         sample   {} of {} items of {}, {:.1} MB of values\n\
         use      {} fetches for a value stored, {} of items fetched before they go ({})\n\
         price    a miss costs {} (--miss); a byte of memory is worth the misses it spares\n\
         a GiB    {} items in memcached by its chunks, {} raw, {} as below\n\
         work     {} core s for a million values stored as below and fetched as often\n",
        cache.sample.len(),
        cache.items,
        cache.title,
        bytes as f64 / 1e6,
        figures(prospect.reads_per_write),
        percent(prospect.fetched_share),
        cache.use_source,
        time(f64::from(prospect.miss_microseconds) / 1e6),
        per_gib(forecast.items_per_gib_memcached),
        per_gib(forecast.items_per_gib_raw),
        per_gib(forecast.items_per_gib),
        figures(forecast.core_seconds_per_million),
    );
    if let (Some(today), Some(then)) = (prospect.hit_share, forecast.hit_share) {
        text.push_str(&format!(
            "hits     {} of gets today, {} then: by a model (Zipf 0.99), not measured\n",
            percent(today),
            percent(then)
        ));
    }
    text.push('\n');
    text.push_str(&format!(
        "{:<20}{:>8}{:>9}  {:<12}{:>7}{:>7}{:>9}{:>9}  {}\n",
        "keys/longest value",
        "bytes",
        "a value",
        "do",
        "takes",
        "ratio",
        "us in",
        "us out",
        "pays if a miss costs"
    ));
    for class in forecast.classes.iter().take(ROWS) {
        text.push_str(&row(class, bytes as f64));
    }
    if forecast.classes.len() > ROWS {
        text.push_str(&format!("and {} more\n", forecast.classes.len() - ROWS));
    }
    text
}

fn row(class: &ClassForecast, all_bytes: f64) -> String {
    let name = match class.name.as_str() {
        "" => "too few of a kind",
        name => name,
    };
    let share = class.values as f64 * class.value_bytes / all_bytes.max(1.0);
    let start = format!(
        "{name:<20}{:>8}{:>9}",
        percent(share),
        figures(class.value_bytes)
    );
    let done = match (class.method, class.codec) {
        (Method::STORE, _) => "leave raw".to_string(),
        (method, _) => method.to_string(),
    };
    let Some(codec) = class.codec else {
        return format!("{start}  {done}\n");
    };
    let turns = match class.pays_from {
        Some(seconds) if class.method == codec => format!("{} or more", time(seconds.0)),
        Some(seconds) => format!("{} or more, by {codec}", time(seconds.0)),
        None => "nothing would do".to_string(),
    };
    format!(
        "{start}  {done:<12}{:>7}{:>7.2}{:>9.2}{:>9.2}  {turns}\n",
        figures(class.stored_bytes),
        class.value_bytes / class.stored_bytes,
        class.encode.0 * 1e6,
        class.decode.0 * 1e6
    )
}

fn time(seconds: f64) -> String {
    match seconds {
        0.0 => "nothing".to_string(),
        _ if seconds < 1e-3 => format!("{} us", figures(seconds * 1e6)),
        _ if seconds < 1.0 => format!("{} ms", figures(seconds * 1e3)),
        _ => format!("{} s", figures(seconds)),
    }
}

fn to_json(cache: &Cache, forecast: &Forecast) -> serde_json::Value {
    let class = |class: &ClassForecast| {
        json!({
            "name": class.name,
            "values": class.values,
            "key_bytes": class.key_bytes,
            "value_bytes": class.value_bytes,
            "method": class.method.to_string(),
            "codec": class.codec.map(|codec| codec.to_string()),
            "stored_bytes": class.stored_bytes,
            "encode_seconds": class.encode.0,
            "decode_seconds": class.decode.0,
            "pays_from_miss_seconds": class.pays_from.map(|seconds| seconds.0),
            "measured": class.measured,
        })
    };
    json!({
        "of": cache.title,
        "items": cache.items,
        "sampled": cache.sample.len(),
        "reads_per_write": cache.prospect.reads_per_write,
        "fetched_share": cache.prospect.fetched_share,
        "miss_seconds": f64::from(cache.prospect.miss_microseconds) / 1e6,
        "hit_share": cache.prospect.hit_share,
        "hit_share_modelled": forecast.hit_share,
        "core_seconds_per_million": forecast.core_seconds_per_million,
        "items_per_gib": forecast.items_per_gib,
        "items_per_gib_raw": forecast.items_per_gib_raw,
        "items_per_gib_memcached": forecast.items_per_gib_memcached,
        "classes": forecast.classes.iter().map(class).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_listed() {
        let check = |text: &str, expected: Option<&[u8]>| {
            assert_eq!(decoded(text).as_deref(), expected, "{text}")
        };
        check("user%3A1", Some(b"user:1"));
        check("plain", Some(b"plain"));
        check("a%20b", None);
        check("a%2", None);
        check("", None);
    }

    #[test]
    fn times_have_units() {
        let check = |seconds: f64, expected: &str| assert_eq!(time(seconds), expected);
        check(3.42e-6, "3.42 us");
        check(1e-3, "1.00 ms");
        check(12.0, "12.0 s");
    }
}
