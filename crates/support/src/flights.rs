//! Values that are made once for each key, outside any lock.

use crate::fork::{ForkLock, generation};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The keys whose values are being made. A thread that wants one of them waits for the thread that makes it; threads with other keys do
/// not wait.
///
/// Values are kept elsewhere: the thread that makes one also stores it. Where it could not be made, each thread that waited tries by itself,
/// so that an error or an interrupt is that of one thread alone. A child that was forked meanwhile waits for nobody.
pub struct Flights<K>(ForkLock<BTreeMap<K, Arc<Flight>>>);

struct Flight {
    /// Forks before it began: a child does not have the thread.
    generation: u64,
    landed: Mutex<bool>,
    ended: Condvar,
}

impl Flight {
    fn begin() -> Arc<Self> {
        let (landed, ended) = (Mutex::new(false), Condvar::new());
        Arc::new(Self { generation: generation(), landed, ended })
    }

    fn wait(&self) {
        let mut landed = self.landed.lock().unwrap_or_else(PoisonError::into_inner);
        while !*landed {
            landed = self.ended.wait(landed).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn land(&self) {
        *self.landed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }
}

/// Ends a flight, also where its thread panics.
struct Landing<'a, K: Ord> {
    all: &'a ForkLock<BTreeMap<K, Arc<Flight>>>,
    key: &'a K,
    flight: Arc<Flight>,
}

impl<K: Ord> Drop for Landing<'_, K> {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if all.get(self.key).is_some_and(|there| Arc::ptr_eq(there, &self.flight)) {
            all.remove(self.key);
        }
        drop(all);
        self.flight.land();
    }
}

impl<K: Ord + Clone> Flights<K> {
    pub const fn new() -> Self {
        Self(ForkLock::new(BTreeMap::new()))
    }

    /// The value of a key: what `find` gives, else what `make` makes and stores where `find` looks. Of threads with one key one makes
    /// at a time. Also says whether it was found.
    pub fn once<T, E>(
        &self,
        key: &K,
        find: impl Fn() -> Option<T>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, bool), E> {
        let landing = loop {
            if let Some(found) = find() {
                return Ok((found, true));
            }
            let mut all = self.0.lock();
            let other = all.get(key).filter(|f| f.generation == generation()).cloned();
            match other {
                Some(flight) => {
                    drop(all);
                    flight.wait();
                }
                None => {
                    let flight = Flight::begin();
                    all.insert(key.clone(), flight.clone());
                    break Landing { all: &self.0, key, flight };
                }
            }
        };
        // One that landed between the search and this flight stored its value before.
        if let Some(found) = find() {
            return Ok((found, true));
        }
        let made = make();
        drop(landing);
        made.map(|made| (made, false))
    }
}

impl<K: Ord + Clone> Default for Flights<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    type Values = Mutex<BTreeMap<u32, u32>>;

    fn find(values: &Values, key: u32) -> Option<u32> {
        values.lock().unwrap().get(&key).copied()
    }

    fn make(values: &Values, key: u32) -> Result<u32, String> {
        values.lock().unwrap().insert(key, 10 * key);
        Ok(10 * key)
    }

    #[test]
    fn threads_with_other_keys_do_not_wait() {
        let (flights, values) = (Flights::new(), Values::default());
        let (begun, end) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let slow = scope.spawn(|| {
                flights.once(
                    &1,
                    || find(&values, 1),
                    || {
                        begun.wait();
                        end.wait();
                        make(&values, 1)
                    },
                )
            });
            begun.wait();
            // The first is in the middle of it.
            let other = flights.once(&2, || find(&values, 2), || make(&values, 2));
            assert_eq!(other, Ok((20, false)));
            assert!(!slow.is_finished());
            end.wait();
            assert_eq!(slow.join().unwrap(), Ok((10, false)));
        });
        assert!(flights.0.lock().is_empty());
    }

    #[test]
    fn threads_with_one_key_make_it_once() {
        let (flights, values, made) = (Flights::new(), Values::default(), AtomicUsize::new(0));
        let all = Barrier::new(8);
        let found: Vec<_> = thread::scope(|scope| {
            let one = || {
                all.wait();
                flights.once(
                    &1,
                    || find(&values, 1),
                    || {
                        made.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(Duration::from_millis(20));
                        make(&values, 1)
                    },
                )
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().unwrap().unwrap()).collect()
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        assert!(found.iter().all(|(value, _)| *value == 10));
        assert_eq!(found.iter().filter(|(_, found)| !found).count(), 1);
    }

    #[test]
    fn an_error_or_a_panic_is_that_of_one_thread() {
        let (flights, values) = (Flights::new(), Values::default());
        for panics in [false, true] {
            values.lock().unwrap().clear();
            let (begun, end) = (Barrier::new(2), Barrier::new(2));
            thread::scope(|scope| {
                let broken = scope.spawn(|| {
                    flights.once(
                        &1,
                        || find(&values, 1),
                        || {
                            begun.wait();
                            end.wait();
                            assert!(!panics, "as requested");
                            Err("no".to_string())
                        },
                    )
                });
                begun.wait();
                let other =
                    scope.spawn(|| flights.once(&1, || find(&values, 1), || make(&values, 1)));
                thread::sleep(Duration::from_millis(10));
                assert!(!other.is_finished());
                end.wait();
                assert_eq!(other.join().unwrap(), Ok((10, false)));
                assert_eq!(broken.join().ok(), (!panics).then(|| Err("no".to_string())));
            });
            assert!(flights.0.lock().is_empty());
        }
    }

    #[test]
    fn a_child_does_not_wait_for_a_thread_that_it_does_not_have() {
        let flights = Flights::new();
        let lost =
            Arc::new(Flight { generation: u64::MAX, ..Arc::into_inner(Flight::begin()).unwrap() });
        flights.0.lock().insert(1, lost.clone());
        assert_eq!(flights.once(&1, || None, || Ok::<_, ()>(3)), Ok((3, false)));
        // The end of the lost one, were it here, takes nothing away.
        drop(Landing { all: &flights.0, key: &1, flight: lost });
        assert!(flights.0.lock().is_empty());
    }
}
