//! Memory that threads keep from call to call, so that a product never waits for fresh pages.
#![expect(unsafe_code, reason = "lines are lent as plain bytes")]

use std::cell::Cell;
use std::thread::LocalKey;

use super::quantize::Line;

thread_local! {
    /// Activations of the call that this thread makes.
    static LINES: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    /// Panels that this thread has unpacked.
    static PANELS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Cache lines taken from this thread and given back when dropped. Whoever takes while it is taken gets new memory.
pub(super) struct Scratch {
    lines: Vec<Line>,
    home: &'static LocalKey<Cell<Vec<Line>>>,
}

impl Scratch {
    /// For a call's activations.
    pub(super) fn take_lines() -> Self {
        Self {
            lines: LINES.take(),
            home: &LINES,
        }
    }

    /// For panels: at least `len` bytes.
    pub(super) fn take_bytes(len: usize) -> Self {
        let mut lines = PANELS.take();
        if lines.len() * size_of::<Line>() < len {
            lines.resize(len.div_ceil(size_of::<Line>()), Line::ZERO);
        }
        Self { lines, home: &PANELS }
    }

    pub(super) fn vector(&mut self) -> &mut Vec<Line> {
        &mut self.lines
    }

    pub(super) fn as_slice(&self) -> &[Line] {
        &self.lines
    }

    /// All of it as bytes at a cache line.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: lines consist of numbers without gaps, and any bytes are such numbers.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), size_of_val(self.lines.as_slice())) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.home.set(std::mem::take(&mut self.lines));
    }
}
