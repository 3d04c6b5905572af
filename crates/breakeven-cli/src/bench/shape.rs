//! Shapes of load: the form of one request, and the times of requests.

use super::values::{Values, push_key};
use breakeven_memcached::client::push_set;

/// The pause between two requests of one connection of the paced load, and the gets in each (mc-crusher's).
const PACE_NS: u64 = 50_000_000;
const PACED_GETS: usize = 50;
/// Keys of a batched get.
const BATCH_KEYS: usize = 20;

/// The requests that are sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Gets of several keys each.
    Gets {
        gets: usize,
        keys: usize,
    },
    Sets {
        sets: usize,
    },
}

/// A shape of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub kind: Kind,
    /// Whether each connection keeps a pace, instead of all together.
    pub is_paced: bool,
}

impl Shape {
    pub const BATCHED: Shape = Shape {
        kind: Kind::Gets {
            gets: 1,
            keys: BATCH_KEYS,
        },
        is_paced: false,
    };
    pub const PACED: Shape = Shape {
        kind: Kind::Gets {
            gets: PACED_GETS,
            keys: 1,
        },
        is_paced: true,
    };

    pub fn single(gets: usize) -> Shape {
        Shape {
            kind: Kind::Gets { gets, keys: 1 },
            is_paced: false,
        }
    }

    pub fn sets(sets: usize) -> Shape {
        Shape {
            kind: Kind::Sets { sets },
            is_paced: false,
        }
    }

    /// Keys of the requests that are sent at once.
    pub fn keys(self) -> usize {
        match self.kind {
            Kind::Gets { gets, keys } => gets * keys,
            Kind::Sets { sets } => sets,
        }
    }

    /// Replies that end a request, among the bytes that are sent at once.
    pub fn requests(self) -> usize {
        match self.kind {
            Kind::Gets { gets, .. } => gets,
            Kind::Sets { sets } => sets,
        }
    }

    /// Keys of one request.
    pub fn keys_a_request(self) -> usize {
        self.keys() / self.requests()
    }

    /// Returns the connections that offer so many keys a second: the requested number, or the number that the pace
    /// needs.
    pub fn connections(self, keys_per_second: Option<f64>, wanted: usize) -> usize {
        match keys_per_second.filter(|_| self.is_paced) {
            Some(rate) => {
                let of_one = self.keys() as f64 * 1e9 / PACE_NS as f64;
                (rate / of_one).round().max(1.0) as usize
            }
            None => wanted,
        }
    }

    /// Writes the bytes that are sent at once for the draws from a number on.
    pub fn push(self, target: &mut Vec<u8>, draws: &[u32], first: usize, values: &Values) {
        let keys = &draws[first..first + self.keys()];
        match self.kind {
            Kind::Gets { keys: of_one, .. } => {
                for some in keys.chunks(of_one) {
                    target.extend_from_slice(b"get");
                    for key in some {
                        target.push(b' ');
                        push_key(target, *key);
                    }
                    target.extend_from_slice(b"\r\n");
                }
            }
            Kind::Sets { .. } => {
                let mut text = Vec::with_capacity(16);
                for (number, key) in keys.iter().enumerate() {
                    text.clear();
                    push_key(&mut text, *key);
                    push_set(target, &text, values.another(*key, first + number));
                }
            }
        }
    }
}

/// The due times of requests, in nanoseconds from the start, each with its connection.
pub struct Schedule {
    random: fastrand::Rng,
    gap_ns: f64,
    next_ns: f64,
    connections: usize,
    sent: usize,
    is_paced: bool,
}

impl Schedule {
    /// Makes the schedule of so many keys a second. Paced connections begin one after the other and keep their pace.
    /// Other requests come as a Poisson process, each on the next connection.
    pub fn new(shape: Shape, keys_per_second: f64, connections: usize, seed: u64) -> Schedule {
        let gap_ns = match shape.is_paced {
            true => PACE_NS as f64 / connections as f64,
            false => shape.keys() as f64 * 1e9 / keys_per_second,
        };
        Schedule {
            random: fastrand::Rng::with_seed(seed),
            gap_ns,
            next_ns: 0.0,
            connections,
            sent: 0,
            is_paced: shape.is_paced,
        }
    }

    /// Returns when the next request is due.
    pub fn due_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Takes the next request and returns its connection.
    pub fn take(&mut self) -> usize {
        self.next_ns += match self.is_paced {
            true => self.gap_ns,
            false => -(1.0 - self.random.f64()).ln() * self.gap_ns,
        };
        self.sent += 1;
        (self.sent - 1) % self.connections
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_offer_what_was_asked_for() {
        let check = |shape: Shape, rate: f64| {
            let connections = shape.connections(Some(rate), 50);
            let mut schedule = Schedule::new(shape, rate, connections, 1);
            let mut keys = 0;
            let mut taken = vec![0; connections];
            while schedule.due_ns() < 10_000_000_000 {
                taken[schedule.take()] += 1;
                keys += shape.keys();
            }
            let found = keys as f64 / 10.0;
            assert!(
                (found / rate - 1.0).abs() < 0.02,
                "{shape:?}: {found} of {rate}"
            );
            let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
            assert!(most - least <= 1, "{least} to {most}");
        };
        check(Shape::BATCHED, 200_000.0);
        check(Shape::PACED, 200_000.0);
        check(Shape::single(8), 100_000.0);
        assert_eq!(Shape::PACED.connections(Some(200_000.0), 50), 200);
        assert_eq!(Shape::BATCHED.connections(Some(200_000.0), 50), 50);
    }

    #[test]
    fn requests_are_what_the_shape_says() {
        let values = Values::load(None, 100, 1).unwrap();
        let draws: Vec<u32> = [9, 9, 9].into_iter().chain(1..=20).collect();
        let check = |shape: Shape, expected: &str| {
            let mut text = Vec::new();
            shape.push(&mut text, &draws, 3, &values);
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        };
        let keys: String = (1..=20).map(|key| format!(" bench:{key:08}")).collect();
        check(Shape::BATCHED, &format!("get{keys}\r\n"));
        check(
            Shape::single(2),
            "get bench:00000001\r\nget bench:00000002\r\n",
        );
        let set = |key: u32| {
            let value = std::str::from_utf8(values.another(key, 2 + key as usize)).unwrap();
            format!("set bench:{key:08} 0 0 {}\r\n{value}\r\n", value.len())
        };
        check(Shape::sets(2), &(set(1) + &set(2)));
        assert_eq!((Shape::BATCHED.keys(), Shape::BATCHED.requests()), (20, 1));
        assert_eq!(
            (Shape::PACED.keys(), Shape::PACED.keys_a_request()),
            (50, 1)
        );
    }
}
