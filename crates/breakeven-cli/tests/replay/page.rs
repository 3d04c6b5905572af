//! The page of a replay: made by the command and from its JSON, and checked in a real browser.

use super::super::page::{browse, chromium, left_out, photograph};
use super::*;

/// Records the sizes of the pictures, and any errors.
const LOOK: &str = r#"<script>
const faults = [];
addEventListener("error", (event) => faults.push(String(event.message)), true);
addEventListener("securitypolicyviolation", (event) => faults.push(event.violatedDirective));
addEventListener("load", () => {
  const boxes = [...document.querySelectorAll("svg.plot")].map((plot) => {
    const box = plot.getBBox();
    return [plot.id, box.width, box.height];
  });
  const wide = document.documentElement.scrollWidth > innerWidth;
  const out = document.createElement("pre");
  out.id = "seen";
  out.textContent = JSON.stringify({ boxes, wide, faults });
  document.body.append(out);
});
</script>"#;

#[derive(serde::Deserialize)]
struct Seen {
    boxes: Vec<(String, f64, f64)>,
    wide: bool,
    faults: Vec<String>,
}

/// Replays a loop with a page, and returns its place and the output.
fn replayed(cache: &TempDir, folder: &TempDir) -> (std::path::PathBuf, Output) {
    let page = folder.path().join("replay.html");
    let report = format!("--report={}", page.display());
    let output = run(
        cache,
        &[
            &"replay",
            &folder.path().join("pages"),
            &"--trace",
            &folder.path().join("loop.txt"),
            &"--page=4KiB",
            &"--memory=512KiB",
            &"--miss=1ms",
            &report,
            &"--json",
        ],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    (page, output)
}

#[test]
fn a_replay_writes_its_page() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let (page, output) = replayed(&cache, &folder);
    let html = fs::read_to_string(&page).expect("the page");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["schema"], "breakeven.replay/1");
    // Raw-only and the adaptive cache were requested, and the rest is for the curves.
    assert_eq!(json["policies"].as_array().expect("policies").len(), 2);
    assert_eq!(json["splits"].as_array().expect("splits").len(), 16);
    let headline = json["headline"].as_str().expect("a headline");
    assert!(
        html.contains(headline) && headline.contains("raw-only"),
        "{headline}"
    );
    let told = stderr(&output);
    assert!(
        told.contains("replayed 18 of 18, split:95:zstd:again"),
        "{told}"
    );
    assert!(
        !told.contains('\u{1b}'),
        "no terminal, no control characters"
    );

    // The same page from the saved results.
    let saved = folder.path().join("replay.json");
    fs::write(&saved, &output.stdout).expect("a file");
    let again = folder.path().join("again.html");
    let made = run(&cache, &[&"report", &saved, &"--output", &again]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert_eq!(fs::read_to_string(&again).expect("a page"), html);

    let nowhere = format!("--report={}", folder.path().join("no/page.html").display());
    let output = run(&cache, &[&"replay", &folder.path().join("pages"), &nowhere]);
    check_refused(&output, 1, &["no folder"]);
    assert!(
        output.stdout.is_empty(),
        "it is refused before anything is replayed"
    );
}

#[test]
fn the_page_of_a_replay_works_in_a_browser() {
    let Some(browser) = chromium() else {
        left_out("not tried: Chromium is not installed (Debian: apt-get install chromium)");
        return;
    };
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let (page, _) = replayed(&cache, &folder);
    let html = fs::read_to_string(&page).expect("the page");
    // The page allows no script; the checked copy allows this one.
    let looked = html
        .replacen(
            "img-src data:",
            "script-src 'unsafe-inline'; img-src data:",
            1,
        )
        .replacen("<title>", &format!("{LOOK}<title>"), 1);
    let copy = page.with_file_name("looked.html");
    fs::write(&copy, looked).expect("a copy");
    for width in [1280, 420] {
        let arguments = [
            "--dump-dom".to_string(),
            format!("--window-size={width},900"),
        ];
        let output = browse(browser, &copy, &arguments);
        let dom = String::from_utf8(output.stdout).expect("text");
        let (_, seen) = dom
            .split_once("<pre id=\"seen\">")
            .expect("it was looked at");
        let (seen, _) = seen.split_once("</pre>").expect("its end");
        let seen: Seen = serde_json::from_str(seen).expect("what was seen");
        assert!(seen.faults.is_empty(), "{:?}", seen.faults);
        assert!(!seen.wide, "the page is wider than its window of {width}");
        assert_eq!(seen.boxes.len(), 8);
        for (id, width, height) in &seen.boxes {
            assert!(
                *width > 300.0 && *height > 200.0,
                "{id}: {width} by {height}"
            );
        }
    }
    photograph(browser, &page, "replay-page");
}
