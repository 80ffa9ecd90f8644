//! Work on a thread of its own.

use std::panic::catch_unwind;
use tessera_diag::Diagnostics;
use tessera_target::{beside, deep};

#[test]
fn work_has_a_large_stack_and_nested_work_stays_there() {
    fn deep(n: usize) -> usize {
        let room = std::hint::black_box([n; 512]);
        if n == 0 { 0 } else { deep(n - 1) + room[7] - room[8] + 1 }
    }
    let found = beside(|| {
        let outer = std::thread::current().id();
        Ok((deep(4_000), beside(move || Ok(std::thread::current().id() == outer))?))
    });
    assert_eq!(found, Ok((4_000, true)));
}

#[test]
fn a_thread_that_is_done_is_used_again() {
    let id = || beside(|| Ok(std::thread::current().id()));
    let first: Vec<_> = (0..8).map(|_| id()).collect();
    assert!(first.iter().filter(|one| **one == first[0]).count() > 1);
}

#[test]
fn what_borrows_is_done_there_too() {
    let (here, mut seen) = (std::thread::current().id(), None);
    let length = deep(|| {
        seen = Some(std::thread::current().id());
        Ok(5)
    });
    assert_eq!((length, seen.map(|id| id == here)), (Ok(5), Some(false)));
}

#[test]
fn a_panic_goes_on_in_the_caller() {
    let caught = catch_unwind(|| beside(|| -> Result<(), Diagnostics> { panic!("seven") }));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"seven"));
}
