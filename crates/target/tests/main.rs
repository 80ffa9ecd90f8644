//! The tests of what backends share. They are one binary, which is linked once.

mod arrays;
mod worker;
