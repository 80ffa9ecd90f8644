//! Call replay of Python's calls: values are walked into tokens ([`walk`]), a table finds the recording of an earlier call with equal tokens, and the
//! recording runs on the call's arrays and numbers (`tessera_driver::replay`). A call without a
//! recording takes the full path, which reports what is wrong with it, and is recorded there.

pub mod kernel;
mod walk;
