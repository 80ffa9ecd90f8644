//! Parts of the compiler, each by itself.

mod coalesce;
mod code;
mod count;
mod descriptors;
mod fill;
mod maps;
mod per_warpgroup_store;
mod reports;
mod side;
mod slots;
mod speed;
mod stamps;
mod tools;
