//! The views of a report, for the program and for the laboratory: text and pictures.

#![deny(unsafe_code)]

pub mod draw;
pub mod report;
pub mod screen;
pub mod text;
