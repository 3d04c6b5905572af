//! The field table: the reported fields of a `stats()` struct, written once, rendered three ways.
//!
//! A [`FieldTable`] lists the fields of one plain struct with name, unit, kind and help text. Greppable text, JSON and
//! the Prometheus text exposition (format 0.0.4) come from the same list. A field in the table is in all three, and no
//! other place spells a name or a unit.
//!
//! It promises that names are legal for Prometheus (checked while compiling when the table is a `const`). Counters end
//! in `_total` there and units are base units. Label values and help texts are escaped. It does not register, collect
//! or serve anything: doors do.

use std::fmt::Write;

use serde_json::{Map, Number, Value as Json};

/// The unit of a field, always a base unit: bytes and not kibibytes, seconds and not milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain count or flag; its name says its subject.
    None,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Joules.
    Joules,
    /// Euros.
    Euros,
    /// A quotient of two like amounts.
    Ratio,
}

impl Unit {
    /// Returns the name's ending in every rendering, the empty string for [`Unit::None`].
    pub const fn suffix(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Joules => "joules",
            Unit::Euros => "euros",
            Unit::Ratio => "ratio",
        }
    }
}

/// Whether a field can only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It starts at zero and does not fall while the process lives.
    Counter,
    /// It may rise and fall.
    Gauge,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// A real number; one that is not finite is `null` in JSON and `NaN`, `+Inf` or `-Inf` in
    /// Prometheus.
    Real(f64),
    /// No value yet: `-` in text, `null` in JSON, no sample in Prometheus.
    Unknown,
}

impl From<Option<f64>> for Value {
    fn from(value: Option<f64>) -> Value {
        value.map_or(Value::Unknown, Value::Real)
    }
}

/// One field of a `stats()` struct `T`.
pub struct Field<T> {
    /// The name without unit, in lower case with underscores: `raw`, `encode`, `blocks`.
    pub name: &'static str,
    /// The unit, which becomes the name's ending.
    pub unit: Unit,
    /// Counter or gauge.
    pub kind: Kind,
    /// One sentence for people, without a full stop.
    pub help: &'static str,
    /// Reads the value.
    pub value: fn(&T) -> Value,
}

impl<T> Field<T> {
    /// Makes a field that can only grow.
    pub const fn counter(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        value: fn(&T) -> Value,
    ) -> Field<T> {
        Field {
            name,
            unit,
            kind: Kind::Counter,
            help,
            value,
        }
    }

    /// Makes a field that may rise and fall.
    pub const fn gauge(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        value: fn(&T) -> Value,
    ) -> Field<T> {
        Field {
            name,
            unit,
            kind: Kind::Gauge,
            help,
            value,
        }
    }

    /// Returns the name with its unit, as text and JSON spell it: `raw_bytes`.
    pub fn key(&self) -> String {
        match self.unit {
            Unit::None => self.name.to_string(),
            unit => format!("{}_{}", self.name, unit.suffix()),
        }
    }
}

/// A label's name and value, such as `("class", "text")`; names follow the rule of field names.
pub type Label = (&'static str, String);

/// One struct to render, with the labels that distinguish it from the other rows.
pub struct Row<'a, T> {
    /// The labels that distinguish it from the other rows.
    pub labels: &'a [Label],
    /// The struct.
    pub stats: &'a T,
}

/// The fields of the struct `T`, and the three renderings of any number of rows of it.
///
/// # Example
/// ```
/// use breakeven::decide::fields::{Field, FieldTable, Row, Unit, Value};
///
/// struct Stats { raw_bytes: u64 }
/// const TABLE: FieldTable<Stats> = FieldTable::new("breakeven_demo", &[
///     Field::counter("raw", Unit::Bytes, "Bytes before compression", |stats| {
///         Value::Count(stats.raw_bytes)
///     }),
/// ]);
/// let text = TABLE.prometheus(&[Row { labels: &[], stats: &Stats { raw_bytes: 7 } }]);
/// assert!(text.ends_with("breakeven_demo_raw_bytes_total 7\n"));
/// ```
pub struct FieldTable<T: 'static> {
    subject: &'static str,
    fields: &'static [Field<T>],
}

impl<T> FieldTable<T> {
    /// Makes a table; `subject` is the prefix of its Prometheus names.
    ///
    /// # Panics
    /// When a name is not lower case letters, digits and underscores starting with a letter, or a
    /// help text is empty. In a `const` that is a compile error.
    pub const fn new(subject: &'static str, fields: &'static [Field<T>]) -> FieldTable<T> {
        assert_name(subject);
        let mut index = 0;
        while index < fields.len() {
            assert_name(fields[index].name);
            assert!(!fields[index].help.is_empty(), "a field needs a help text");
            index += 1;
        }
        FieldTable { subject, fields }
    }

    /// Returns the fields in their order, for a door with a wire form of its own.
    pub fn fields(&self) -> &'static [Field<T>] {
        self.fields
    }

    /// Renders one line a field, `key value`, each after its row's labels as `name=value`.
    pub fn text(&self, rows: &[Row<'_, T>]) -> String {
        let mut text = String::new();
        for row in rows {
            for field in self.fields {
                for (name, value) in row.labels {
                    let _ = write!(text, "{name}={value} ");
                }
                let _ = writeln!(
                    text,
                    "{} {}",
                    field.key(),
                    plain((field.value)(row.stats), "-")
                );
            }
        }
        text
    }

    /// Renders an array with one object a row: its labels as strings, then its fields by key.
    pub fn json(&self, rows: &[Row<'_, T>]) -> Json {
        let object = |row: &Row<'_, T>| {
            let mut object = Map::new();
            for (name, value) in row.labels {
                object.insert(name.to_string(), Json::String(value.clone()));
            }
            for field in self.fields {
                let value = match (field.value)(row.stats) {
                    Value::Count(count) => Json::Number(count.into()),
                    Value::Real(real) => Number::from_f64(real).map_or(Json::Null, Json::Number),
                    Value::Unknown => Json::Null,
                };
                object.insert(field.key(), value);
            }
            Json::Object(object)
        };
        Json::Array(rows.iter().map(object).collect())
    }

    /// Renders the Prometheus text exposition: for each field `# HELP`, `# TYPE` and one sample a
    /// row, families never interleaved.
    pub fn prometheus(&self, rows: &[Row<'_, T>]) -> String {
        let mut text = String::new();
        for field in self.fields {
            let (total, kind) = match field.kind {
                Kind::Counter => ("_total", "counter"),
                Kind::Gauge => ("", "gauge"),
            };
            let name = format!("{}_{}{total}", self.subject, field.key());
            let help = field.help.replace('\\', "\\\\").replace('\n', "\\n");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for row in rows {
                let value = (field.value)(row.stats);
                if value != Value::Unknown {
                    let labels = prometheus_labels(row.labels);
                    let _ = writeln!(text, "{name}{labels} {}", plain(value, ""));
                }
            }
        }
        text
    }
}

const fn assert_name(name: &str) {
    let bytes = name.as_bytes();
    assert!(
        !bytes.is_empty() && bytes[0].is_ascii_lowercase(),
        "a field's name starts with a lower case letter"
    );
    let mut index = 0;
    while index < bytes.len() {
        let byte = bytes[index];
        assert!(
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_',
            "a field's name holds lower case letters, digits and underscores"
        );
        index += 1;
    }
}

fn prometheus_labels(labels: &[Label]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pairs: Vec<String> = labels
        .iter()
        .map(|(name, value)| {
            assert_name(name);
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            format!("{name}=\"{}\"", value.replace('\n', "\\n"))
        })
        .collect();
    format!("{{{}}}", pairs.join(","))
}

fn plain(value: Value, unknown: &str) -> String {
    match value {
        Value::Count(count) => count.to_string(),
        Value::Real(real) if real.is_nan() => "NaN".to_string(),
        Value::Real(real) if real.is_infinite() => {
            if real > 0.0 { "+Inf" } else { "-Inf" }.to_string()
        }
        Value::Real(real) => format!("{real:?}"),
        Value::Unknown => unknown.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Stats {
        blocks: u64,
        encode_seconds: f64,
        ratio: Option<f64>,
    }

    const TABLE: FieldTable<Stats> = FieldTable::new(
        "breakeven_demo",
        &[
            Field::counter(
                "blocks",
                Unit::None,
                "Blocks\\written,\nall of them",
                |stats| Value::Count(stats.blocks),
            ),
            Field::counter("encode", Unit::Seconds, "Time spent encoding", |stats| {
                Value::Real(stats.encode_seconds)
            }),
            Field::gauge(
                "compression",
                Unit::Ratio,
                "Raw over stored bytes",
                |stats| stats.ratio.into(),
            ),
        ],
    );

    fn labels(class: &str) -> Vec<Label> {
        vec![("class", class.to_string())]
    }

    fn rows<'a>(stats: &'a [Stats], labels: &'a [Vec<Label>]) -> Vec<Row<'a, Stats>> {
        stats
            .iter()
            .zip(labels)
            .map(|(stats, labels)| Row { labels, stats })
            .collect()
    }

    fn two() -> [Stats; 2] {
        [
            Stats {
                blocks: 3,
                encode_seconds: 0.25,
                ratio: Some(2.0),
            },
            Stats {
                blocks: 1,
                encode_seconds: f64::INFINITY,
                ratio: None,
            },
        ]
    }

    #[test]
    fn prometheus_has_help_type_and_escaped_labels() {
        let labels = [labels("text"), labels("a\"b\\c\nd")];
        let expected = "\
# HELP breakeven_demo_blocks_total Blocks\\\\written,\\nall of them
# TYPE breakeven_demo_blocks_total counter
breakeven_demo_blocks_total{class=\"text\"} 3
breakeven_demo_blocks_total{class=\"a\\\"b\\\\c\\nd\"} 1
# HELP breakeven_demo_encode_seconds_total Time spent encoding
# TYPE breakeven_demo_encode_seconds_total counter
breakeven_demo_encode_seconds_total{class=\"text\"} 0.25
breakeven_demo_encode_seconds_total{class=\"a\\\"b\\\\c\\nd\"} +Inf
# HELP breakeven_demo_compression_ratio Raw over stored bytes
# TYPE breakeven_demo_compression_ratio gauge
breakeven_demo_compression_ratio{class=\"text\"} 2.0
";
        assert_eq!(TABLE.prometheus(&rows(&two(), &labels)), expected);
    }

    #[test]
    fn text_and_json_carry_the_same_keys() {
        let labels = [labels("text"), labels("zero")];
        let stats = two();
        let rows = rows(&stats, &labels);
        let text = TABLE.text(&rows);
        assert!(text.contains("class=text encode_seconds 0.25\n"), "{text}");
        assert!(text.contains("class=zero compression_ratio -\n"), "{text}");
        let json = TABLE.json(&rows);
        assert_eq!(json[0]["class"], "text");
        assert_eq!(json[0]["blocks"], 3);
        assert_eq!(json[1]["encode_seconds"], Json::Null);
        assert_eq!(json[1]["compression_ratio"], Json::Null);
        for field in TABLE.fields() {
            assert!(json[0].get(field.key()).is_some(), "{}", field.key());
        }
    }

    #[test]
    #[should_panic(expected = "lower case")]
    fn a_name_prometheus_would_refuse_is_refused() {
        assert_name("raw-bytes");
    }
}
