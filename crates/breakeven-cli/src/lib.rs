//! What the program shows of a report, for itself and for the laboratory: text and pictures.

#![deny(unsafe_code)]

pub mod draw;
pub mod report;
pub mod screen;
pub mod text;
