//! The forms of JSON with a table in `docs/streams-reference.md`: the printed JSON has these forms.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Fields by the place of their object: `files[].frames`, the empty one for the whole.
type Fields = BTreeMap<String, BTreeSet<String>>;

/// Checks that every object of a value has exactly the fields in its schema's table for its place.
#[track_caller]
pub fn check(value: &Value, schema: &str) {
    assert_eq!(value["schema"], schema);
    let documented = documented(schema);
    let mut found = Fields::new();
    gather(value, "", &mut |place, fields| {
        assert_eq!(
            Some(&fields),
            documented.get(place),
            "{schema}, '{place}': found, documented"
        );
        found.insert(place.to_string(), fields);
    });
    assert!(found.len() >= 2, "{schema}: {found:?}");
}

/// Reports each object of a value, with its place.
fn gather(value: &Value, place: &str, tell: &mut impl FnMut(&str, BTreeSet<String>)) {
    match value {
        Value::Object(fields) => {
            tell(place, fields.keys().cloned().collect());
            for (name, value) in fields {
                let below = match place {
                    "" => name.clone(),
                    place => format!("{place}.{name}"),
                };
                gather(value, &below, tell);
            }
        }
        Value::Array(items) => {
            for item in items {
                gather(item, &format!("{place}[]"), tell);
            }
        }
        _ => {}
    }
}

/// Returns the guide's table of a schema: a row for each place, its fields in backquotes.
fn documented(schema: &str) -> Fields {
    let page = include_str!("../../../../docs/streams-reference.md");
    let head = format!("| `{schema}` | |\n|---|---|\n");
    let (_, table) = page.split_once(&head).expect("the table of a schema");
    let rows = table.lines().map_while(|line| line.strip_prefix("| "));
    let quoted = |cell: &str| -> Vec<String> {
        let parts = cell.split('`').skip(1).step_by(2);
        parts.map(str::to_string).collect()
    };
    let fields = rows.map(|row| {
        let (place, fields) = row.split_once('|').expect("two cells");
        let place = quoted(place).pop().unwrap_or_default();
        let fields = quoted(fields).into_iter();
        (
            place,
            fields
                .map(|it| it.trim_end_matches("[]").to_string())
                .collect(),
        )
    });
    fields.collect()
}
