//! Workers killed on purpose, in tests: a block with a certain first text names the step at which its thread panics.
//! Likewise a block that must be split at any cost.

use std::cell::Cell;

/// The steps of a worker with one block, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The block came.
    Taken,
    /// Its method is being picked, under the picker's lock.
    Picking,
    /// The method is picked; nothing is compressed.
    Picked,
    /// The frame is made, and nothing is learned from it yet.
    Encoded,
    /// The block's cost is being learned, under the picker's lock.
    Learning,
    /// The raw buffer is given back; the frame is still here.
    GivenBack,
    /// A part of a split block arrived.
    InPart,
}

/// Every step of a whole block.
pub const STEPS: [Step; 6] = [
    Step::Taken,
    Step::Picking,
    Step::Picked,
    Step::Encoded,
    Step::Learning,
    Step::GivenBack,
];

const TEXT: &[u8] = b"whoever compresses this panics, on purpose, at step ";

thread_local! {
    static DOOMED: Cell<Option<Step>> = const { Cell::new(None) };
}

/// Makes a block kill its worker at a step.
pub fn doom(block: &mut [u8], step: Step) {
    let (text, rest) = block.split_at_mut(TEXT.len());
    text.copy_from_slice(TEXT);
    rest[0] = step as u8;
}

/// Checks whether this thread's present block kills, and does so at the first step.
pub fn begin(block: &[u8]) {
    let named = block.strip_prefix(TEXT).and_then(|rest| rest.first());
    DOOMED.set(named.and_then(|&step| STEPS.get(usize::from(step)).copied()));
    at(Step::Taken);
}

/// Panics if a part asks for it, on any thread.
pub fn in_part(part: &[u8]) {
    let named = part.strip_prefix(TEXT).and_then(|rest| rest.first());
    assert!(
        named != Some(&(Step::InPart as u8)),
        "killed in a part, on purpose"
    );
}

const SPLIT_TEXT: &[u8] = b"this block wants to be split, whatever it costs, into so many parts: ";

/// Makes a block be split.
pub fn split(block: &mut [u8], parts: usize) {
    let (text, rest) = block.split_at_mut(SPLIT_TEXT.len());
    text.copy_from_slice(SPLIT_TEXT);
    rest[0] = parts as u8;
}

/// Returns the number of parts that a block asks for.
pub fn parts_of(block: &[u8]) -> Option<usize> {
    let parts = block.strip_prefix(SPLIT_TEXT)?.first()?;
    Some(usize::from(*parts))
}

/// Panics if the block asks for it at this step.
pub fn at(step: Step) {
    if DOOMED.get() == Some(step) {
        DOOMED.set(None);
        panic!("killed at {step:?}, on purpose");
    }
}
