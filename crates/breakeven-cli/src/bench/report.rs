//! The results of a load, as a row while it runs, as a sentence in the end, or as JSON.

use breakeven::quoted::quoted;
use std::path::PathBuf;

use anyhow::Result;
use breakeven_cli::text::figures;
use serde::Serialize;

use super::Found;
use super::picture::{Curve, picture};
use super::shape::{Kind, Shape};
use crate::options::BenchOptions;

/// The share of requests that may take longer than the limit.
pub const SHARE_OVER_MAX: f64 = 0.01;
/// The share of the offered keys that must have come back.
const KEPT_UP: f64 = 0.95;

/// One run of a load.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// `None` for a load at full speed.
    offered_keys_per_second: Option<f64>,
    keys_per_second: f64,
    seconds: f64,
    keys: u64,
    hit_share: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    share_over_limit: f64,
    unanswered: u64,
    server_cpu_seconds: Option<f64>,
    client_cpu_seconds: f64,
}

impl Step {
    pub fn of(offered: Option<f64>, found: &Found, limit_seconds: f64) -> Step {
        Step {
            offered_keys_per_second: offered,
            keys_per_second: found.keys_per_second(),
            seconds: found.seconds,
            keys: found.keys,
            hit_share: found.hits as f64 / found.keys.max(1) as f64,
            p50_us: found.quantile_us(0.5),
            p99_us: found.quantile_us(0.99),
            p999_us: found.quantile_us(0.999),
            max_us: found.latencies.max() as f64 / 1e3,
            share_over_limit: found.share_over((limit_seconds * 1e9) as u64),
            unanswered: found.unanswered,
            server_cpu_seconds: found.server_cpu_seconds,
            client_cpu_seconds: found.client_cpu_seconds,
        }
    }

    /// Whether few enough requests took too long, and none was left behind.
    pub fn holds(&self) -> bool {
        let keeps_up = (self.offered_keys_per_second)
            .is_none_or(|offered| self.keys_per_second >= KEPT_UP * offered);
        keeps_up && self.share_over_limit < SHARE_OVER_MAX && self.unanswered == 0
    }

    fn offered(&self) -> String {
        self.offered_keys_per_second
            .map_or("flat out".to_string(), figures)
    }

    fn row(&self) -> String {
        let offered = self.offered();
        let server = match self.server_cpu_seconds {
            Some(seconds) => format!("{:.2}", seconds / self.keys.max(1) as f64 * 1e6),
            None => "-".to_string(),
        };
        format!(
            "{offered:>10}{:>11}{:>8.1} %{:>9.0}{:>9.0}{:>9.0}{:>10.2} %{server:>9}{:>7.0} %",
            figures(self.keys_per_second),
            100.0 * self.hit_share,
            self.p50_us,
            self.p99_us,
            self.p999_us,
            100.0 * self.share_over_limit,
            100.0 * self.client_cpu_seconds / self.seconds
        )
    }
}

/// The report on the whole load.
#[derive(Serialize)]
pub struct Report {
    server: String,
    version: String,
    shape: String,
    keys: u32,
    value_bytes_mean: f64,
    values: String,
    skew: String,
    seed: u64,
    limit_seconds: f64,
    /// The client's cost of a miss, after which it stored the value; `None` where it did not.
    miss_seconds: Option<f64>,
    /// The highest offered rate, in keys a second, at which few enough requests exceeded the limit, if it was sought.
    sustained_keys_per_second: Option<f64>,
    steps: Vec<Step>,
    /// How long requests took in each step, to be drawn.
    #[serde(skip)]
    curves: Vec<Curve>,
    #[serde(skip)]
    plot: Option<PathBuf>,
    #[serde(skip)]
    is_json: bool,
    #[serde(skip)]
    is_search: bool,
}

impl Report {
    pub fn new(
        options: &BenchOptions,
        shape: Shape,
        version: &str,
        value_bytes_mean: f64,
    ) -> Report {
        let values = match &options.values {
            Some(path) => breakeven_cli::text::printable(&quoted(&path).to_string()),
            None => "made up".to_string(),
        };
        Report {
            server: options.address.clone(),
            version: version.to_string(),
            shape: described(shape),
            keys: options.keys,
            value_bytes_mean,
            values,
            skew: options.skew.to_string(),
            seed: options.seed,
            limit_seconds: options.limit,
            miss_seconds: options.miss,
            sustained_keys_per_second: None,
            steps: Vec::new(),
            curves: Vec::new(),
            plot: options.plot.clone(),
            is_json: options.json,
            is_search: !options.flat_out && options.rate.is_none(),
        }
    }

    /// Adds a run, and prints its row.
    pub fn add(&mut self, offered: Option<f64>, found: Found) -> Result<()> {
        let step = Step::of(offered, &found, self.limit_seconds);
        if !self.is_json {
            let head = match self.steps.is_empty() {
                true => self.head(),
                false => String::new(),
            };
            crate::standard::print(format!("{head}{}\n", step.row()));
        }
        self.curves.push(Curve {
            name: step.offered(),
            holds: step.holds(),
            latencies: found.latencies,
        });
        self.steps.push(step);
        Ok(())
    }

    fn head(&self) -> String {
        let miss = self.miss_seconds.map_or(String::new(), |seconds| {
            format!(", a miss costs {} ms and is stored", figures(seconds * 1e3))
        });
        format!(
            "{} {}: {}{miss}\n{} keys, {} values of {:.0} bytes in the mean ({}), each compared\n\n\
             {:>10}{:>11}{:>10}{:>9}{:>9}{:>9}{:>12}{:>9}{:>9}\n\
             {:>10}{:>11}{:>10}{:>9}{:>9}{:>9}{:>12}{:>9}{:>9}\n",
            self.server,
            self.version,
            self.shape,
            figures(self.keys.into()),
            self.skew,
            self.value_bytes_mean,
            self.values,
            "offered",
            "answered",
            "hits",
            "p50",
            "p99",
            "p99.9",
            "longer than",
            "server",
            "client",
            "keys/s",
            "keys/s",
            "",
            "us",
            "us",
            "us",
            format!("{:.1} ms", self.limit_seconds * 1e3),
            "s/M keys",
            "busy"
        )
    }

    /// Prints the findings, and draws them.
    pub fn finish(mut self) -> Result<()> {
        if let Some(path) = &self.plot {
            let title = format!("{} {}: {}", self.server, self.version, self.shape);
            crate::page::write(path, &picture(&title, self.limit_seconds, &self.curves))?;
        }
        if self.is_search {
            let held = self.steps.iter().filter(|step| step.holds());
            let offered = held.filter_map(|step| step.offered_keys_per_second);
            self.sustained_keys_per_second = offered.max_by(f64::total_cmp);
        }
        let text = match (self.is_json, self.is_search) {
            (true, _) => serde_json::to_string_pretty(&self)? + "\n",
            (false, false) => return Ok(()),
            (false, true) => {
                let limit = format!("{:.1} ms", self.limit_seconds * 1e3);
                match self.sustained_keys_per_second {
                    Some(rate) => format!(
                        "\n{} keys/s with less than 1 % of requests longer than {limit}\n",
                        figures(rate)
                    ),
                    None => format!(
                        "\nno rate that was tried leaves less than 1 % of requests longer than {limit}\n"
                    ),
                }
            }
        };
        crate::standard::print(&text);
        Ok(())
    }
}

fn described(shape: Shape) -> String {
    match shape.kind {
        Kind::Gets { gets: 1, keys: 1 } => "gets of 1 key".to_string(),
        Kind::Gets { gets: 1, keys } => format!("gets of {keys} keys"),
        Kind::Gets { gets, .. } if shape.is_paced => {
            format!("{gets} gets at once every 50 ms on each connection")
        }
        Kind::Gets { gets, .. } => format!("{gets} gets at once"),
        Kind::Sets { sets } => format!("{sets} sets at once"),
    }
}
