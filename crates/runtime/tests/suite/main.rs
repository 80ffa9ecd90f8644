//! The store as backends and processes see it, and the driver of devices where there is none.

#[cfg(feature = "cuda")]
mod cuda;
mod damage;
mod folder;
mod limit;
mod processes;
mod store;
#[cfg(unix)]
mod trust;
