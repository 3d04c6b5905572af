//! Lint as a test: the rules of the house that a machine can keep.
//!
//! Floors and circles, lengths of files and functions, headers, words, unsafe code (each in `tidy/`, each with the
//! snippets it must refuse), the code map, the manifests. Faults that rustc, clippy and cargo-deny already refuse are
//! theirs. To change a rule, change its table.

#[path = "tidy/files.rs"]
mod files;
#[path = "tidy/floors.rs"]
mod floors;
#[path = "tidy/house.rs"]
mod house;
#[path = "tidy/source.rs"]
mod source;

#[test]
fn every_file_is_in_order() {
    let sources = source::rust_sources();
    println!("{} Rust files read", sources.len());
    assert!(sources.len() >= 15, "only {} files found", sources.len());
    let mut findings: Vec<String> = sources.iter().flat_map(files::findings).collect();
    findings.extend(floors::findings(&sources));
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}
