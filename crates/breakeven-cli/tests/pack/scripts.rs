//! Other people's scripts with the program in the place of zstd, with the commands that they start.

use std::fs;
use std::process::Command;

use super::letters::shell;
use super::{folder, message, ok};

/// Returns whether a program is installed.
fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("{program} is not installed: nothing tried with it");
    }
    found
}

/// Lines that leave `back` with the content of `file`.
#[track_caller]
fn check_back(lines: &str) {
    let (folder, data) = folder();
    fs::create_dir(folder.path().join("tree")).expect("a folder");
    fs::copy(folder.path().join("file"), folder.path().join("tree/file")).expect("a copy");
    let output = shell(&folder, &format!("set -e\n{lines}"));
    ok(&output);
    let text = message(&output);
    let back = fs::read(folder.path().join("back")).unwrap_or_default();
    assert!(back == data, "{lines}: {} bytes, {text}", back.len());
}

#[test]
fn tar_packs_by_a_program_that_is_named() {
    for lines in [
        "tar -I zstd -cf t.tar.zst tree; tar -I zstd -xOf t.tar.zst >back",
        "tar -I 'zstd -19 -T0 --long=27' -cf t.tar.zst tree; tar -I 'zstd --long=27' -xOf t.tar.zst >back",
        "tar --zstd -cf t.tar.zst tree; tar --zstd -xOf t.tar.zst >back",
        "tar --use-compress-program='breakeven pack' -cf t.tar.zst tree; tar --zstd -xOf t.tar.zst >back",
        // By the ending alone.
        "tar -caf t.tar.zst tree; tar -xOf t.tar.zst >back",
    ] {
        check_back(lines);
    }
}

/// The parts between two ends of a copy: the program at both ends, with a slowly read pipe between them.
#[test]
fn streams_of_backups_go_through_a_pipe() {
    for (sender, receiver) in [
        // btrbk, stream_compress and stream_compress_level, _threads, _long and _adapt.
        ("zstd -c", "zstd -d -c"),
        ("zstd -c -3 -T0", "zstd -d -c -T0"),
        ("zstd -c -19 -T2 --long=27", "zstd -d -c --long=27"),
        ("zstd -c --adapt", "zstd -d -c"),
        // zfs-autobackup and syncoid, zstd-fast, zstd-slow and zstd-adapt.
        ("zstdmt -3", "zstdmt -dc"),
        ("zstdmt -19", "zstdmt -dc"),
        ("zstdmt --adapt", "zstdmt -dc"),
        ("zstd -3", "zstd -dc"),
        ("breakeven pack", "breakeven unpack"),
    ] {
        check_back(&format!(
            "cat file | {sender} | dd bs=64k status=none | {receiver} >back"
        ));
        check_back(&format!(
            "tar -c tree | {sender} | dd bs=64k status=none | {receiver} | tar -xO >back"
        ));
    }
}

/// rsync's batch of the differences goes through a pipe, and rsync takes it at the other end.
#[test]
fn batches_of_rsync_go_through_a_pipe() {
    if !is_there("rsync") {
        return;
    }
    for (sender, receiver) in [
        ("zstd -c", "zstd -dc"),
        ("zstdmt -q --adapt", "zstdcat"),
        ("breakeven pack", "breakeven unpack"),
    ] {
        check_back(&format!(
            "mkdir copy; rsync -a --only-write-batch=batch tree/ copy/
             {sender} <batch | dd bs=64k status=none | {receiver} | rsync -a --read-batch=- copy/; mv copy/file back"
        ));
    }
}

#[test]
fn find_packs_each_file_or_all_of_a_call() {
    for lines in [
        r"find tree -type f -exec zstd -q --rm {} \; ; unzstd -q tree/file.zst; mv tree/file back",
        "find tree -type f -exec zstd -q --rm {} + ; unzstd -q tree/file.zst; mv tree/file back",
        "find tree -type f -print0 | xargs -0 -P2 zstd -19 -q --rm --; unzstd --rm -q tree/file.zst; mv tree/file back",
        "find tree -type f -exec breakeven pack -q --rm {} + ; breakeven unpack -q tree/file.zst; mv tree/file back",
        "cp tree/file 'tree/a name'; find tree -type f -exec zstd -q --rm {} + ; test ! -e 'tree/a name'; \
            find tree -name '*.zst' -exec zstd -dq --rm {} + ; cmp tree/file 'tree/a name'; mv tree/file back",
    ] {
        check_back(lines);
    }
}

#[test]
fn git_archives_by_a_command_of_its_configuration() {
    if !is_there("git") {
        return;
    }
    let repository = "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git init -q r; cp file r/; cd r; git add file; \
        git -c user.name=n -c user.email=e commit -q -m m";
    for command in [
        "zstd -c",
        "zstd -19 -T0 -c",
        "breakeven pack",
        "breakeven pack -c",
    ] {
        check_back(&format!(
            "{repository}; git config tar.tar.zst.command '{command}'; git archive --format=tar.zst HEAD >../t.tar.zst; \
             git archive -o ../u.tar.zst HEAD; cd ..; tar -xOf u.tar.zst --zstd | cmp - file; tar -xOf t.tar.zst --zstd >back"
        ));
    }
}

/// logrotate starts its compresscmd with the log as standard input and the new file as standard output.
#[test]
fn logrotate_packs_what_it_rotated() {
    for (pack, options, unpack) in [
        ("zstd", "", "unzstd"),
        ("zstd", "-19 -T0", "zstdcat"),
        ("zstdmt", "-q -9", "zstd -dc"),
        ("breakeven pack", "-q", "breakeven cat"),
    ] {
        check_back(&format!(
            "{pack} {options} <file >log.1.zst; {unpack} <log.1.zst >back"
        ));
    }
    if !is_there("logrotate") {
        return;
    }
    check_back(
        "cp file log; chmod 644 log; chmod 755 .
         printf '%s/log { rotate 2\n compress\n compresscmd %s\n uncompresscmd %s\n compressext .zst\n \
         compressoptions -9 -T0\n su root root\n }\n' \"$PWD\" \"$(command -v zstd)\" \"$(command -v unzstd)\" >conf
         chmod 644 conf; logrotate -f -s state conf; zstdcat log.1.zst >back",
    );
}
