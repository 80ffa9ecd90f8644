//! Properties of layouts, checked by brute force on random ones. Seeds are fixed: each run checks
//! the same cases.

mod along;
mod banks;
mod build;
mod convert;
mod holders;
mod maps;
mod mma;
mod part;
mod random;
mod reshape;
mod text;
