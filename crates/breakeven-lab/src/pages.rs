//! The pages of the laboratory: one for each paper, and the pictures they show.
//!
//! A page stands at `PAPER.md`, its pictures at `pictures/PAPER/EXPERIMENT-NAME.svg`, all below `docs/lab`. Pictures,
//! and the text between the marks of a page, are made from the records and from nothing else. The rest of a page is
//! prose. A page with marks that name no more than the paper has a table of all its experiments there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::experiment::{Experiment, Picture};
use crate::laboratory::Finding;
use crate::papers;
use crate::tables;

const PICTURES: &str = "pictures";

/// Returns the folder of pages.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab")
}

/// Returns each page and picture as the records want it, by its name below the folder of pages.
///
/// # Errors
///
/// If a page cannot be read, lacks the marks of an experiment, or an experiment its figures.
pub fn fresh(folder: &Path, records: &Path) -> Result<BTreeMap<String, String>> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut papers: BTreeMap<&str, Vec<(&Experiment, Vec<Finding>)>> = BTreeMap::new();
    for experiment in papers::all() {
        let pictures = (experiment.pictures)(records).context(experiment.key)?;
        let shown = (experiment.table)(records).context(experiment.key)?;
        let mut section = tables::section(experiment, &shown);
        let of_paper = papers.entry(experiment.paper()).or_default();
        of_paper.push((experiment, shown.findings));
        for picture in pictures {
            let name = picture_name(experiment, &picture)?;
            let caption = tables::escape(&picture.caption);
            section.push_str(&format!("\n\n![{caption}]({name})\n\n*{caption}*"));
            let taken = files.insert(name.clone(), picture.svg);
            ensure!(taken.is_none(), "two pictures are called {name}");
        }
        let name = page_name(experiment.paper());
        let page = match files.remove(&name) {
            Some(page) => page,
            None => read(&folder.join(&name))?,
        };
        files.insert(name, tables::splice(&page, experiment.key, &section)?);
    }
    for (paper, shown) in papers {
        if let Some(page) = files.get_mut(&page_name(paper))
            && tables::has_marks(page, paper)
        {
            *page = tables::splice(page, paper, &tables::overview(&shown))?;
        }
    }
    Ok(files)
}

fn page_name(paper: &str) -> String {
    format!("{paper}.md")
}

fn picture_name(experiment: &Experiment, picture: &Picture) -> Result<String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    ensure!(
        !picture.name.is_empty() && picture.name.chars().all(plain),
        "'{}' is no name of a picture",
        picture.name
    );
    Ok(format!(
        "{PICTURES}/{}-{}.svg",
        experiment.key, picture.name
    ))
}

/// Writes files that differ from the records, and removes pictures that they no longer make.
pub fn write(folder: &Path, records: &Path) -> Result<()> {
    let files = fresh(folder, records)?;
    for name in stale(folder, &files)? {
        let path = folder.join(&name);
        match files.get(&name) {
            Some(text) => {
                fs::create_dir_all(path.parent().expect("a file below a folder"))
                    .and_then(|()| fs::write(&path, text))
                    .with_context(|| format!("write {}", path.display()))?;
            }
            None => {
                fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// Returns the names of the files that differ from the records' ones: pages, pictures, and pictures that nothing makes.
pub fn stale(folder: &Path, files: &BTreeMap<String, String>) -> Result<BTreeSet<String>> {
    let differs = |(name, text): &(&String, &String)| {
        fs::read_to_string(folder.join(name)).ok().as_ref() != Some(text)
    };
    let mut names: BTreeSet<String> = files
        .iter()
        .filter(differs)
        .map(|(name, _)| name.clone())
        .collect();
    for paper in entries(&folder.join(PICTURES))? {
        for picture in entries(&folder.join(PICTURES).join(&paper))? {
            let name = format!("{PICTURES}/{paper}/{picture}");
            if !files.contains_key(&name) {
                names.insert(name);
            }
        }
    }
    Ok(names)
}

/// Returns the names in a folder; none if there is no such folder.
fn entries(folder: &Path) -> Result<Vec<String>> {
    let found = match fs::read_dir(folder) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("list {}", folder.display())),
    };
    let names = found.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_pictures_are_what_the_records_say() {
        let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("records");
        let files = fresh(&folder(), &records).unwrap();
        assert!(!files.is_empty());
        let stale = stale(&folder(), &files).unwrap();
        assert!(stale.is_empty(), "run breakeven-lab figures: {stale:?}");
        let (overview, _) = files["hirsch2017.md"].split_once("\n## ").unwrap();
        for experiment in papers::named("hirsch2017") {
            let row = format!("\n| [{}](#hirsch2017", experiment.name());
            assert!(overview.contains(&row), "{row}");
        }
    }

    #[test]
    fn what_differs_is_written_and_what_nothing_makes_is_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let copy = temporary.path();
        for experiment in papers::all() {
            let name = format!("{}.md", experiment.paper());
            fs::copy(folder().join(&name), copy.join(&name)).unwrap();
        }
        let left = copy.join("pictures/breakeven/left-over.svg");
        fs::create_dir_all(left.parent().unwrap()).unwrap();
        fs::write(&left, "<svg/>").unwrap();
        let records = copy.join("records");
        let before = stale(copy, &fresh(copy, &records).unwrap()).unwrap();
        assert!(
            before.contains("pictures/breakeven/left-over.svg"),
            "{before:?}"
        );
        // Nothing is recorded there, so a page that shows records differs.
        assert!(before.contains("breakeven.md"), "{before:?}");
        write(copy, &records).unwrap();
        assert!(!left.exists());
        assert!(
            stale(copy, &fresh(copy, &records).unwrap())
                .unwrap()
                .is_empty()
        );
        fs::write(copy.join("breakeven.md"), "no marks\n").unwrap();
        assert!(fresh(copy, &records).is_err());
    }

    #[test]
    fn pictures_have_plain_names() {
        let check = |name: &str, expected: Option<&str>| {
            let picture = Picture {
                name: name.to_string(),
                caption: String::new(),
                svg: String::new(),
            };
            let experiment = papers::all().next().unwrap();
            let found = picture_name(experiment, &picture).ok();
            assert_eq!(found.as_deref(), expected, "{name}");
        };
        check("fig-5", Some("pictures/breakeven/codec-overhead-fig-5.svg"));
        check("../fig", None);
        check("", None);
    }
}
