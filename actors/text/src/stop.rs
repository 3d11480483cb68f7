//! Finds stop strings in text that arrives in pieces, and holds back no more than may still become one.
//!
//! ```text
//! push("The quick br") ─▶ "The quick br"
//! push("own f")        ─▶ "own f" is the beginning of the stop "own fox": held
//! push("ox jumps")     ─▶ stopped
//! ```
//! The stop that is complete first wins; of those complete at the same byte, the longest. That depends on the text alone, not on
//! how it was cut. The search is an Aho-Corasick automaton: its state after a byte is the longest end of the text that begins a
//! stop string, which is exactly what has to be held. The cost of a piece does not depend on what came before it.

use std::sync::Arc;

/// What `StopMatcher::push` answers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pushed {
    /// Text that is certainly not part of a stop string.
    pub text: String,
    /// Whether a stop string was found; its text and all behind it are dropped.
    pub stopped: bool,
}

/// The state of one answer. A clone goes on from the same place.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    states: Arc<[State]>,
    state: usize,
    held: String,
    stopped: bool,
}

/// The text so far ends with these bytes of a stop string.
#[derive(Clone, Debug, Default)]
struct State {
    /// How many bytes.
    depth: usize,
    /// One byte more.
    next: Vec<(u8, usize)>,
    /// The state of the longest shorter end that begins a stop string.
    fallback: usize,
    /// The length of the longest stop string that ends here.
    stop_len: Option<usize>,
}

const ROOT: usize = 0;

impl StopMatcher {
    /// A matcher for `stops`. An empty stop string is never found.
    pub fn new<S: AsRef<str>>(stops: &[S]) -> Self {
        let mut states = vec![State::default()];
        for stop in stops {
            insert(&mut states, stop.as_ref().as_bytes());
        }
        link(&mut states);
        Self {
            states: states.into(),
            state: ROOT,
            held: String::new(),
            stopped: false,
        }
    }

    /// Takes the next piece of text. After a stop everything is dropped.
    pub fn push(&mut self, text: &str) -> Pushed {
        if self.stopped {
            return Pushed {
                text: String::new(),
                stopped: true,
            };
        }
        for (at, byte) in text.bytes().enumerate() {
            self.state = step(&self.states, self.state, byte);
            if let Some(len) = self.states[self.state].stop_len {
                return self.stop(&text[..=at], len);
            }
        }
        self.held.push_str(text);
        let free = self.held.len() - self.states[self.state].depth;
        Pushed {
            text: self.held.drain(..free).collect(),
            stopped: false,
        }
    }

    /// The text held back, when no more comes.
    pub fn finish(&mut self) -> String {
        self.state = ROOT;
        std::mem::take(&mut self.held)
    }

    fn stop(&mut self, text: &str, len: usize) -> Pushed {
        self.stopped = true;
        self.state = ROOT;
        let mut text = std::mem::take(&mut self.held) + text;
        text.truncate(text.len() - len);
        Pushed { text, stopped: true }
    }
}

fn child(state: &State, byte: u8) -> Option<usize> {
    state
        .next
        .iter()
        .find(|(found, _)| *found == byte)
        .map(|(_, next)| *next)
}

fn step(states: &[State], mut state: usize, byte: u8) -> usize {
    loop {
        match child(&states[state], byte) {
            Some(next) => return next,
            None if state == ROOT => return ROOT,
            None => state = states[state].fallback,
        }
    }
}

fn insert(states: &mut Vec<State>, stop: &[u8]) {
    let mut at = ROOT;
    for byte in stop {
        at = match child(&states[at], *byte) {
            Some(next) => next,
            None => {
                let next = states.len();
                let depth = states[at].depth + 1;
                states.push(State {
                    depth,
                    ..State::default()
                });
                states[at].next.push((*byte, next));
                next
            }
        };
    }
    if at != ROOT {
        states[at].stop_len = Some(stop.len());
    }
}

/// Sets the fallbacks, the shallow states first, as each needs those of shallower ones.
fn link(states: &mut [State]) {
    let mut queue = std::collections::VecDeque::from([ROOT]);
    while let Some(at) = queue.pop_front() {
        for (byte, next) in states[at].next.clone() {
            let fallback = if at == ROOT {
                ROOT
            } else {
                step(states, states[at].fallback, byte)
            };
            states[next].fallback = fallback;
            states[next].stop_len = states[next].stop_len.or(states[fallback].stop_len);
            queue.push_back(next);
        }
    }
}

#[cfg(test)]
mod tests;
