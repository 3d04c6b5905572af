//! The library against the outside: programs that know nothing of it, and real file systems.
//!
//! A missing program is named and skipped (`make test` installs it where it may), and is an error under `CI`. Tests
//! named `root_*` mount file systems and run only under `make test-root`.

#[path = "outside/file_systems.rs"]
mod file_systems;
#[path = "outside/golden.rs"]
mod golden;
#[path = "outside/mounted.rs"]
mod mounted;
#[path = "outside/sources.rs"]
mod sources;
#[path = "outside/stock.rs"]
mod stock;
#[path = "outside/streams.rs"]
mod streams;
#[path = "outside/verdicts.rs"]
mod verdicts;
