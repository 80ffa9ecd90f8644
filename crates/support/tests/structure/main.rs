//! What the repository promises about itself as a whole: which crate may use which, how long a
//! file may be, which types keep out of the compiler, and what no file may mention.

mod dependencies;
mod determinism;
mod entries;
mod mentions;
mod profiles;
mod repository;
mod sizes;
