//! Call replay of Python's calls, of kernels, operations and traced functions alike: values are walked into tokens
//! ([`walk`]), a table finds the recording of an earlier call with equal tokens, and the recording
//! runs on the call's arrays and numbers (`tessera_driver::replay`). A call without a recording takes
//! the full path, which reports what is wrong with it, and is recorded there.

mod around;
mod form;
pub mod kernel;
pub mod notes;
mod on_device;
mod operation;
mod traced;
mod walk;

pub use around::{process_profile, scoped_settings, trace_closed, trace_opened};
pub use notes::{note_fixed, note_made};
pub use operation::Operation;
pub use traced::{Calls, Replayed};
