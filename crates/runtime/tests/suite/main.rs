//! The store as backends and processes see it.

mod damage;
mod folder;
mod limit;
mod processes;
mod store;
