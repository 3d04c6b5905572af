//! The figures of the thesis again, drawn from the records.

use std::path::Path;

use anyhow::Result;
use breakeven::model::{Access, BufferCache, Coverage};
use breakeven_cli::draw::palette;

use super::bench::{self, Times, Way};
use super::cache::{SETTINGS, SHARES, Setting};
use super::corpus::Set;
use super::costs::{self, Costs, Count};
use super::ratio::{self, PAGE, PAGE_BYTES, Ratios};
use super::{devices, mean, published, rates};
use crate::chart::{self, GREY, Look, Note, Panel, Quantity, Row, Series, Value, Words};
use crate::experiment::Picture;
use crate::record::CellRecord;

/// The note that every figure of data must have.
const PART: &str = "4 of the 12 files of Silesia; two PostgreSQL B-trees in the place of three of the Mouse Genome Database";

fn picture(name: &str, caption: String, svg: String) -> Picture {
    Picture {
        name: name.to_string(),
        caption,
        svg,
    }
}

/// Returns the colour class of one of the thesis's methods.
fn colour(method: &str) -> String {
    let classes = palette::classes(&published::METHODS);
    let at = published::METHODS.iter().position(|of| *of == method);
    at.map_or(GREY.to_string(), |at| classes[at].clone())
}

/// Returns the highest value of some series, a little raised.
fn top(series: &[Series]) -> f64 {
    let points = series.iter().flat_map(|series| &series.points);
    1.06 * points.map(|(_, value)| *value).fold(0.0, f64::max)
}

/// Returns the lowest value of some series.
fn least(series: &[Series]) -> f64 {
    let points = series.iter().flat_map(|series| &series.points);
    points
        .map(|(_, value)| *value)
        .fold(f64::INFINITY, f64::min)
}

/// Draws Figures 6 and 7.
pub fn ratio(records: &Path) -> Result<Vec<Picture>> {
    let (_, ratios) = ratio::recorded(records)?;
    if ratios.names.is_empty() {
        return Ok(Vec::new());
    }
    let data = match ratios.doubt() {
        None => PART,
        Some(doubt) => doubt,
    };
    let caption_6 = format!(
        "Figure 6 again: ratio of whole files ({data}). Hollow: published, over all his data, so not comparable."
    );
    let caption_7 = format!(
        "Figure 7 again: ratio by size of the page, all data at hand together ({data}). Hollow: his 2.13 and 2.97 at 8 KiB, over all his data."
    );
    let caption_files =
        format!("Figures 7a to 7c again: ratio by size of the page for each file ({data}).");
    Ok(vec![
        picture("fig-6", caption_6, whole_files(&ratios)),
        picture("fig-7", caption_7, pages_together(&ratios)),
        picture("fig-7-files", caption_files, pages_by_file(&ratios)),
    ])
}

fn whole_files(ratios: &Ratios) -> String {
    let names = ratios.names.iter().map(|name| {
        let short = name.rsplit('/').next().unwrap_or(name);
        (
            short.trim_start_matches("pg_btree_").to_string(),
            name.as_str(),
        )
    });
    let mut rows = vec![whole_row(
        "what is at hand",
        &|name| ratio::is_counted(name),
        ratios,
    )];
    let published = |codec: &published::PublishedCodec| Value {
        value: codec.whole_ratio,
        colour: colour(codec.method),
        is_hollow: true,
        title: format!("published, {}: {:.2}", codec.name, codec.whole_ratio),
    };
    rows.insert(
        0,
        Row {
            name: "all his data".to_string(),
            values: published::CODECS.iter().map(published).collect(),
        },
    );
    rows.extend(names.map(|(short, name)| whole_row(&short, &|other| other == name, ratios)));
    let values = rows.iter().flat_map(|row| &row.values);
    let most = values.map(|value| value.value).fold(4.0, f64::max);
    let words = Words {
        id: "fig-6",
        title: "Ratio of whole files",
        description: "One row for each file and one for all together, a dot for each codec; published ratios are hollow.",
    };
    let legend: Vec<(String, &str)> = published::METHODS
        .iter()
        .map(|method| (colour(method), *method))
        .collect();
    let legend: Vec<(&str, &str)> = legend
        .iter()
        .map(|(class, name)| (class.as_str(), *name))
        .collect();
    let x = Quantity::log("ratio, raw over stored bytes", 1.0, 1.1 * most);
    chart::rows(&words, &x, &rows, (&legend, "published"))
}

fn whole_row(title: &str, chosen: &dyn Fn(&str) -> bool, ratios: &Ratios) -> Row {
    let value = |method: &&str| {
        let ratio = ratios.ratio(chosen, None, method)?;
        Some(Value {
            value: ratio,
            colour: colour(method),
            is_hollow: false,
            title: format!("{title}, {method}: {ratio:.2}"),
        })
    };
    Row {
        name: title.to_string(),
        values: published::METHODS.iter().filter_map(value).collect(),
    }
}

/// Returns ratio over page size.
fn by_page(ratios: &Ratios, name: &str, method: &str, chosen: &dyn Fn(&str) -> bool) -> Series {
    let point = |page: &u64| Some((*page as f64, ratios.ratio(chosen, Some(*page), method)?));
    Series {
        name: name.to_string(),
        colour: colour(method),
        look: Look::Solid,
        points: PAGE_BYTES.iter().filter_map(point).collect(),
        has_dots: true,
    }
}

fn pages_together(ratios: &Ratios) -> String {
    let line = |method: &&str| by_page(ratios, method, method, &|name| ratio::is_counted(name));
    let series: Vec<Series> = published::METHODS.iter().map(line).collect();
    let note = |codec: &published::PublishedCodec| {
        Some(Note {
            at: (PAGE as f64, codec.page_ratio?),
            colour: colour(codec.method),
            text: format!("his {} {:.2}", codec.name, codec.page_ratio?),
        })
    };
    let panel = Panel {
        title: "Ratio by size of the page".to_string(),
        x: Quantity::blocks(&PAGE_BYTES),
        y: Quantity::linear("raw over stored bytes", 0.0, top(&series)),
        series,
        notes: published::CODECS.iter().filter_map(note).collect(),
    };
    let words = Words {
        id: "fig-7",
        title: "Ratio by size of the page",
        description: "One rising line for each codec; the published ratios at 8 KiB are hollow dots.",
    };
    chart::panels(&words, &[panel], 1, 620.0)
}

fn pages_by_file(ratios: &Ratios) -> String {
    let line = |name: &String, method: &str| {
        let short = name.rsplit('/').next().unwrap_or(name);
        let short = short
            .trim_start_matches("pg_btree_")
            .trim_end_matches(".idx");
        let look = match Set::of(name) {
            Set::Silesia | Set::Generated => Look::Solid,
            Set::Trees => Look::Thin,
            Set::Deduplicated => Look::Dashed,
        };
        Series {
            look,
            has_dots: false,
            ..by_page(ratios, short, method, &|other| other == name)
        }
    };
    let lines = |method: &str| -> Vec<Series> {
        ratios.names.iter().map(|name| line(name, method)).collect()
    };
    let all: Vec<Series> = published::METHODS
        .iter()
        .flat_map(|method| lines(method))
        .collect();
    let panels: Vec<Panel> = published::METHODS
        .iter()
        .map(|method| Panel {
            title: method.to_string(),
            x: Quantity::blocks(&PAGE_BYTES),
            y: Quantity::log("raw over stored bytes", 1.0, top(&all)),
            series: lines(method),
            notes: Vec::new(),
        })
        .collect();
    let words = Words {
        id: "fig-7-files",
        title: "Ratio by size of the page, file by file",
        description: "A panel for each codec with a line for each file.",
    };
    chart::panels(&words, &panels, 3, 340.0)
}

/// Draws Figures 4 and 5.
pub fn devices(records: &Path) -> Result<Vec<Picture>> {
    let (_, cells) = devices::recorded(records)?;
    if cells.is_empty() {
        return Ok(Vec::new());
    }
    let operations = lines_of_devices(&cells, |_, rate| rate);
    let bandwidth = lines_of_devices(&cells, |bytes, rate| {
        rate * bytes as f64 / f64::from(1 << 20)
    });
    let panel = |title: &str, unit: &str, series: Vec<Series>| Panel {
        title: title.to_string(),
        x: Quantity::blocks(&published::DEVICE_BLOCK_BYTES),
        y: Quantity::log(unit, 0.7 * least(&series), 1.5 * top(&series)),
        series,
        notes: Vec::new(),
    };
    let panels = [
        panel(
            "Figure 4: operations per second",
            "reads per second",
            operations,
        ),
        panel("Figure 5: bandwidth", "MiB/s", bandwidth),
    ];
    let words = Words {
        id: "fig-4-5",
        title: "Operations per second and bandwidth by size of a block",
        description: "Solid lines for the devices measured here, dashed grey ones for the published.",
    };
    let caption = "Figures 4 and 5 again: reads nine to one, four in flight, by direct I/O. Solid: this machine's disk and RAM disk; dashed: the published devices, a desktop's of 2018.";
    let svg = chart::panels(&words, &panels, 2, 460.0);
    Ok(vec![picture("fig-4-5", caption.to_string(), svg)])
}

fn lines_of_devices(cells: &[CellRecord], value: impl Fn(u64, f64) -> f64) -> Vec<Series> {
    let line = |line: devices::Line| {
        let point = |(bytes, rate): &(u64, crate::statistics::Interval)| {
            (*bytes as f64, value(*bytes, rate.middle))
        };
        let (colour, look) = match (line.is_ours, line.device.as_str()) {
            (false, _) => (GREY, Look::Dashed),
            (true, devices::DISK) => ("xz-2", Look::Solid),
            (true, _) => ("bzip2-2", Look::Solid),
        };
        Series {
            name: match line.is_ours {
                true => format!("{} here", line.device.replace("ram", "RAM")),
                false => line.device,
            },
            colour: colour.to_string(),
            look,
            points: line.points.iter().map(point).collect(),
            has_dots: true,
        }
    };
    devices::lines(cells).into_iter().map(line).collect()
}

/// Draws Figures 8 and 9.
pub fn rates(records: &Path) -> Result<Vec<Picture>> {
    let (_, cells) = rates::recorded(records)?;
    let Some(first) = cells.first() else {
        return Ok(Vec::new());
    };
    let all = rates::threads(first);
    let mut panels = Vec::new();
    for way in Way::BOTH {
        let mut series = Vec::new();
        for method in published::METHODS {
            if all > 1 {
                series.extend(rate_line(&cells, method, way, all));
            }
            series.extend(rate_line(&cells, method, way, 1));
        }
        panels.push(Panel {
            title: format!("{}ing", way.name()),
            x: Quantity::blocks(&PAGE_BYTES),
            y: Quantity::log("MB/s", 0.8 * least(&series), 1.2 * top(&series)),
            series,
            notes: Vec::new(),
        });
    }
    let words = Words {
        id: "fig-9",
        title: "Speed by size of the page",
        description: "Two panels, compressing and decompressing, with a line for each codec on one thread and on all.",
    };
    let caption = format!(
        "Figures 8 and 9 again: speed by size of the page; solid {all} threads in bulk, dashed one thread ({}).",
        super::corpus::doubt(first).unwrap_or(PART)
    );
    let svg = chart::panels(&words, &panels, 2, 460.0);
    Ok(vec![picture("fig-9", caption, svg)])
}

fn rate_line(cells: &[CellRecord], method: &str, way: Way, threads: usize) -> Option<Series> {
    let point = |cell: &CellRecord| {
        let times = Times::of(cell, &bench::task(way, threads), method)?;
        let bytes = rates::page_bytes(cell);
        Some((bytes, bytes / mean(&times.wall) / 1e6))
    };
    let points: Vec<(f64, f64)> = cells.iter().filter_map(point).collect();
    (!points.is_empty()).then(|| Series {
        name: match threads {
            1 => format!("{method} x1"),
            threads => format!("{method} x{threads}"),
        },
        colour: colour(method),
        look: if threads == 1 {
            Look::Dashed
        } else {
            Look::Solid
        },
        points,
        has_dots: true,
    })
}

/// Draws Table 4.
pub fn costs(records: &Path) -> Result<Vec<Picture>> {
    let (_, Some(costs)) = costs::recorded(records)? else {
        return Ok(Vec::new());
    };
    let threads = costs.threads();
    let mut rows = Vec::new();
    for way in Way::BOTH {
        let counts = if threads > 1 {
            vec![1, threads]
        } else {
            vec![1]
        };
        rows.extend(counts.into_iter().map(|count| cost_row(&costs, way, count)));
    }
    for count in Count::BOTH {
        rows.push(fault_row(&costs, count));
    }
    let words = Words {
        id: "table-4",
        title: "The cost of an 8 KiB page",
        description: "One row for each operation, a dot for each codec; published times are hollow.",
    };
    let (lz4, zstd) = (colour("lz4:1"), colour("zstd:3"));
    let legend = [
        (lz4.as_str(), "lz4:1"),
        (zstd.as_str(), "zstd:3"),
        ("xz-2", "disk"),
    ];
    let values = rows.iter().flat_map(|row| &row.values);
    let (low, high) = values.fold((1.0_f64, 110.0_f64), |(low, high), value| {
        (low.min(value.value), high.max(value.value))
    });
    let x = Quantity::log("microseconds of an 8 KiB page", 0.8 * low, 1.3 * high);
    let caption = format!(
        "Table 4 again: microseconds of a page of 8 KiB ({}). Hollow: published, on eight threads of a desktop of 2018 and its SATA SSD.",
        costs.doubt().unwrap_or(PART)
    );
    let svg = chart::rows(&words, &x, &rows, (&legend, "published"));
    Ok(vec![picture("table-4", caption, svg)])
}

fn cost_row(costs: &Costs, way: Way, threads: usize) -> Row {
    let mut values = Vec::new();
    for method in costs::METHODS {
        let ours = 1e6 * mean(&costs.pages(method, way, threads));
        let his = published::codec(method).page_times(way, threads > 1).0;
        for (value, is_hollow) in [(Some(ours), false), (his, true)] {
            values.extend(value.map(|value| Value {
                value,
                colour: colour(method),
                is_hollow,
                title: format!("{method}: {value:.1} us"),
            }));
        }
    }
    let name = match threads {
        1 => format!("{}, one thread", way.name()),
        _ => format!("{}, in bulk", way.name()),
    };
    Row { name, values }
}

fn fault_row(costs: &Costs, count: Count) -> Row {
    let value = |value: f64, is_hollow| Value {
        value,
        colour: "xz-2".to_string(),
        is_hollow,
        title: format!("page fault: {value:.1} us"),
    };
    let mut values = vec![value(1e6 * mean(costs.faults(count)), false)];
    let name = match count {
        Count::Thesis => {
            values.push(value(published::FAULT_US, true));
            "page fault, four in flight"
        }
        Count::Waiting => "page fault, one alone",
    };
    Row {
        name: name.to_string(),
        values,
    }
}

/// Draws Figures 1, 3, 10, 12 and 13.
pub fn cache(records: &Path) -> Result<Vec<Picture>> {
    let (_, Some(costs)) = costs::recorded(records)? else {
        return Ok(Vec::new());
    };
    let data = costs.doubt().unwrap_or(PART);
    let mut pictures = vec![
        picture(
            "fig-1",
            "Figure 1 again: hit ratio of a raw cache by size of the data set. Arithmetic alone."
                .to_string(),
            raw_hits(),
        ),
        picture(
            "fig-3",
            format!(
                "Figure 3 again: comparisons of a search among all buffers held, with our ratios ({data})."
            ),
            searches(&costs),
        ),
        picture(
            "fig-10",
            format!(
                "Figure 10 again: hit ratio by share of memory given to compressed buffers; left his ratios, right ours ({data})."
            ),
            hits(&costs),
        ),
    ];
    for setting in &SETTINGS {
        let caption = format!(
            "Figure 12{} again, {}: microseconds per access by share of memory given to compressed buffers, with his Table 4, with ours counted his way, and with ours as somebody waits ({data}). Dots, and percents beside the names, mark the share from which compressing pays.",
            setting.letter,
            setting.name()
        );
        let name = format!("fig-12{}", setting.letter);
        pictures.push(picture(&name, caption, accesses(setting, &costs)));
    }
    let caption = format!(
        "Figure 13 again: microseconds per access if both codec operations cost nothing, before 500 GB, with his page fault and ratios and with ours ({data})."
    );
    pictures.push(picture("fig-13", caption, free(&costs)));
    Ok(pictures)
}

fn raw_hits() -> String {
    let panel = |memory_gb: f64| {
        let line = |name: &str, access: Access, colour: &str| {
            let point = |step: i32| {
                let data_gb = 10.0 * 10f64.powf(f64::from(step) / 40.0);
                let coverage = Coverage {
                    cached_buffers: memory_gb,
                    data_set_buffers: data_gb,
                };
                (data_gb, 100.0 * access.hit_ratio(&coverage))
            };
            Series {
                name: name.to_string(),
                colour: colour.to_string(),
                look: Look::Solid,
                points: (0..=80).map(point).collect(),
                has_dots: false,
            }
        };
        Panel {
            title: format!("{memory_gb} GB of memory"),
            x: Quantity::log("GB of data", 10.0, 1000.0),
            y: Quantity::linear("% of accesses that hit", 0.0, 102.0),
            series: vec![
                line("80-20", Access::Pareto, "xz-2"),
                line("even", Access::Even, GREY),
            ],
            notes: Vec::new(),
        }
    };
    let words = Words {
        id: "fig-1",
        title: "Hit ratio by size of the data set",
        description: "Two panels, for 10 and 25 GB of memory, with falling lines for even and for 80-20 accesses.",
    };
    chart::panels(&words, &[panel(10.0), panel(25.0)], 2, 400.0)
}

fn searches(costs: &Costs) -> String {
    let line = |name: &str, colour: String, ratio: f64| {
        let point = |step: i32| {
            let gb = 0.01 * 10f64.powf(f64::from(step) / 20.0);
            (gb, (gb * 1e9 / PAGE as f64 * ratio).log2())
        };
        Series {
            name: name.to_string(),
            colour,
            look: Look::Solid,
            points: (0..=100).map(point).collect(),
            has_dots: false,
        }
    };
    let mut series = vec![line("raw", GREY.to_string(), 1.0)];
    let methods = costs::METHODS.iter();
    series.extend(methods.map(|method| line(method, colour(method), costs.ratio(method))));
    let panel = Panel {
        title: "Comparisons of a search".to_string(),
        x: Quantity::log(
            "GB of memory, all of it raw or all compressed",
            0.01,
            1000.0,
        ),
        y: Quantity::linear("comparisons", 0.0, top(&series)),
        series,
        notes: Vec::new(),
    };
    let words = Words {
        id: "fig-3",
        title: "Comparisons of a search by memory",
        description: "Three nearly equal lines, for raw buffers and for two codecs: a better ratio adds a comparison or two.",
    };
    chart::panels(&words, &[panel], 1, 620.0)
}

/// Returns a line over the share of memory, in percent.
fn over_shares(name: &str, colour: &str, value: impl Fn(f64) -> f64) -> Series {
    let point = |step: u32| {
        let share = f64::from(step) / f64::from(SHARES);
        (100.0 * share, value(share))
    };
    Series {
        name: name.to_string(),
        colour: colour.to_string(),
        look: Look::Solid,
        points: (0..=SHARES).map(point).collect(),
        has_dots: false,
    }
}

fn shares() -> Quantity {
    Quantity::linear("% of memory compressed", 0.0, 100.0)
}

fn hits(costs: &Costs) -> String {
    let mut panels = Vec::new();
    for gigabytes in [200.0, 500.0] {
        for (whose, is_hollow) in [("his ratios", true), ("ours", false)] {
            let mut series = Vec::new();
            for setting in SETTINGS.iter().filter(|of| of.data_set_gb == gigabytes) {
                for method in costs::METHODS {
                    let cache = setting_cache(setting, costs, method, is_hollow);
                    let access = if setting.access == Access::Even {
                        "even"
                    } else {
                        "80-20"
                    };
                    let name = format!("{} {access}", published::codec(method).name);
                    let mut line = over_shares(&name, &colour(method), |share| {
                        100.0 * cache.hit_ratio(share)
                    });
                    if setting.access == Access::Even {
                        line.look = Look::Dashed;
                    }
                    series.push(line);
                }
            }
            panels.push(Panel {
                title: format!("{gigabytes} GB of data, {whose}"),
                x: shares(),
                y: Quantity::linear("% of accesses that hit", 0.0, 102.0),
                series,
                notes: Vec::new(),
            });
        }
    }
    let words = Words {
        id: "fig-10",
        title: "Hit ratio by compressed share of memory",
        description: "Four panels with rising lines: two sizes of data, published ratios and ours, two codecs, even and 80-20 accesses.",
    };
    chart::panels(&words, &panels, 2, 460.0)
}

fn setting_cache(setting: &Setting, costs: &Costs, method: &str, is_hollow: bool) -> BufferCache {
    match is_hollow {
        true => setting.published(method),
        false => our_cache(setting, costs, method, Count::Thesis),
    }
}

fn our_cache(setting: &Setting, costs: &Costs, method: &str, count: Count) -> BufferCache {
    setting.cache(costs.codec(method, None), mean(costs.faults(count)), count)
}

/// Draws the time per access of a raw and of two split caches.
fn access_panel(title: &str, caches: &[(&str, BufferCache)], high: f64) -> Panel {
    let mut series = Vec::new();
    let mut notes = Vec::new();
    if let Some((_, cache)) = caches.first() {
        let raw = 1e6 * cache.raw_cost().0;
        series.push(over_shares("raw", GREY, |_| raw));
    }
    for (method, cache) in caches {
        let pays = match cache.break_even() {
            Some(shares) => format!("{:.0} %", 100.0 * shares.from),
            None => "never".to_string(),
        };
        let name = format!("{}, {pays}", published::codec(method).name);
        series.push(over_shares(&name, &colour(method), |share| {
            1e6 * cache.cost(share).0
        }));
        notes.extend(cache.break_even().map(|shares| Note {
            at: (100.0 * shares.from, 1e6 * cache.raw_cost().0),
            colour: colour(method),
            text: String::new(),
        }));
    }
    Panel {
        title: title.to_string(),
        x: shares(),
        y: Quantity::linear("microseconds per access", 0.0, high),
        series,
        notes,
    }
}

/// Returns where the axis of some caches ends.
fn highest(caches: &[(&str, BufferCache)]) -> f64 {
    let costs = caches.iter().flat_map(|(_, cache)| {
        let shares = (0..=SHARES).map(|step| f64::from(step) / f64::from(SHARES));
        shares.map(|share| cache.cost(share).0.max(cache.raw_cost().0))
    });
    1.12e6 * costs.fold(0.0, f64::max)
}

fn accesses(setting: &Setting, costs: &Costs) -> String {
    let published = costs::METHODS.map(|method| (method, setting.published(method)));
    let ours =
        |count| costs::METHODS.map(|method| (method, our_cache(setting, costs, method, count)));
    let (thesis, waiting) = (ours(Count::Thesis), ours(Count::Waiting));
    // Both of ours on one scale, so that they can be compared.
    let high = highest(&thesis).max(highest(&waiting));
    let panels = [
        access_panel("the thesis", &published, highest(&published)),
        access_panel("this machine, counted his way", &thesis, high),
        access_panel("this machine, as somebody waits", &waiting, high),
    ];
    let title = format!("Microseconds per access, {}", setting.name());
    let words = Words {
        id: &format!("fig-12{}", setting.letter),
        title: &title,
        description: "Three panels with a level line for the raw cache and a line for each codec over the compressed share of memory.",
    };
    chart::panels(&words, &panels, 3, 345.0)
}

fn free(costs: &Costs) -> String {
    let mut panels = Vec::new();
    for setting in SETTINGS.iter().filter(|of| of.data_set_gb == 500.0) {
        for (whose, is_hollow) in [("the thesis", true), ("this machine", false)] {
            let caches = costs::METHODS.map(|method| {
                let mut cache = setting_cache(setting, costs, method, is_hollow);
                cache.codec = cache.codec.free();
                (method, cache)
            });
            let title = format!("{}, {whose}", setting.name());
            let mut panel = access_panel(&title, &caches, highest(&caches));
            // Everything pays from nothing on.
            panel.notes.clear();
            for line in &mut panel.series {
                line.name = line.name.trim_end_matches(", 0 %").to_string();
            }
            panels.push(panel);
        }
    }
    let words = Words {
        id: "fig-13",
        title: "Microseconds per access at no codec cost",
        description: "Four panels in which every line falls below the raw one from the beginning.",
    };
    chart::panels(&words, &panels, 2, 460.0)
}

#[cfg(test)]
mod tests {
    use super::super::faults::DISK;
    use super::*;
    use crate::record::Record;

    /// Keeps made-up records of everything that is drawn.
    fn record(folder: &Path) {
        let keep = |key: &str, columns, cells: &[CellRecord]| {
            let record = Record::new(folder, key, columns);
            cells.iter().for_each(|cell| record.append(cell).unwrap());
        };
        let names = ["silesia/xml", "postgres/pg_btree_int8_flight_dedup.idx"];
        let cells = ratio::tests::cells(&names, 1.0, 1.1);
        keep(ratio::EXPERIMENT.key, ratio::COLUMNS, &cells);
        let disk = devices::tests::cell(devices::DISK, 2.0, 1.5);
        keep(devices::EXPERIMENT.key, devices::COLUMNS, &[disk]);
        let rates = rates::tests::cell("real", 3.0, 2.0, 1.8);
        keep(rates::EXPERIMENT.key, bench::COLUMNS, &[rates]);
        let costs = costs::tests::record("real", DISK, published::FAULT_US);
        keep(costs::EXPERIMENT.key, bench::COLUMNS, &[costs]);
    }

    #[test]
    fn every_figure_is_drawn_from_the_records() {
        let folder = tempfile::tempdir().unwrap();
        let all = |folder: &Path| -> Vec<Picture> {
            let draw = [ratio, devices, rates, costs, cache];
            draw.iter().flat_map(|draw| draw(folder).unwrap()).collect()
        };
        assert!(all(folder.path()).is_empty(), "nothing is recorded");
        record(folder.path());
        let pictures = all(folder.path());
        let names: Vec<&str> = pictures.iter().map(|of| of.name.as_str()).collect();
        let expected = [
            "fig-6",
            "fig-7",
            "fig-7-files",
            "fig-4-5",
            "fig-9",
            "table-4",
            "fig-1",
            "fig-3",
            "fig-10",
            "fig-12a",
            "fig-12b",
            "fig-12c",
            "fig-12d",
            "fig-13",
        ];
        assert_eq!(names, expected);
        for picture in &pictures {
            let Picture { name, caption, svg } = picture;
            assert!(svg.starts_with("<svg xmlns="), "{name}");
            let drawn = ["<circle", "class=\"line"].map(|mark| svg.contains(mark));
            assert!(drawn.contains(&true), "{name} is empty");
            assert!(!svg.contains("NaN") && !svg.contains("99999"), "{name}");
            let of_data = !["fig-4-5", "fig-1"].contains(&name.as_str());
            assert_eq!(caption.contains(PART), of_data, "{name}: {caption}");
        }
    }

    /// With the costs of the thesis ours counted its way shows its crossings too.
    #[test]
    fn crossings_stand_beside_the_names() {
        let costs = costs::tests::record("real", DISK, published::FAULT_US);
        let costs = Costs::of(costs).unwrap();
        let check = |setting: usize, word: &str, count: usize| {
            let svg = accesses(&SETTINGS[setting], &costs);
            assert_eq!(svg.matches(word).count(), count, "{word} in {svg}");
        };
        // Waiting for one thread of lz4 makes no difference that can be read.
        check(0, ">lz4, 21 %<", 3);
        check(0, ">zstd, 49 %<", 2);
        check(0, ">zstd, 57 %<", 1);
        check(1, ">zstd, never<", 3);
    }
}
