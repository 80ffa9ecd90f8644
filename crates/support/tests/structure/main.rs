//! What the repository promises about itself as a whole: which crate may use which, how long a
//! file may be, which types keep out of the compiler, what no file may mention, and that the page for
//! contributors names what there is.

mod contributing;
mod dependencies;
mod determinism;
mod entries;
mod mentions;
mod profiles;
mod repository;
mod rule_tables;
mod sizes;
mod tests;
mod vendors;
mod words;
