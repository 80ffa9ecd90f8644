//! Typed ids into arenas. An id is four bytes and means nothing without its arena, so that a
//! whole function can be cloned, printed and hashed without following pointers.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// An id that indexes an [`Arena`]; made by [`entity!`](crate::entity).
pub trait Entity: Copy + Eq + Ord + std::hash::Hash + std::fmt::Debug {
    fn from_index(index: usize) -> Self;
    fn index(self) -> usize;
}

/// Declares an id type: `entity!(pub struct OpId, "op");`. The string is the prefix it prints with.
#[macro_export]
macro_rules! entity {
    ($(#[$meta:meta])* $vis:vis struct $name:ident, $prefix:literal) => {
        $(#[$meta])*
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(u32);
        impl $crate::Entity for $name {
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("an arena holds fewer than 2^32 entries"))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

/// A growing list of `T`, indexed by its own id type. Entries are never removed.
#[derive(Clone, Debug)]
pub struct Arena<K, T> {
    items: Vec<T>,
    key: PhantomData<K>,
}

impl<K: Entity, T> Arena<K, T> {
    pub fn new() -> Self {
        Self { items: Vec::new(), key: PhantomData }
    }

    pub fn push(&mut self, item: T) -> K {
        let id = K::from_index(self.items.len());
        self.items.push(item);
        id
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn get(&self, id: K) -> Option<&T> {
        self.items.get(id.index())
    }

    pub fn ids(&self) -> impl DoubleEndedIterator<Item = K> + use<K, T> {
        (0..self.items.len()).map(K::from_index)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &T)> {
        self.items.iter().enumerate().map(|(i, t)| (K::from_index(i), t))
    }
}

impl<K: Entity, T> Default for Arena<K, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Entity, T> Index<K> for Arena<K, T> {
    type Output = T;
    fn index(&self, id: K) -> &T {
        &self.items[id.index()]
    }
}

impl<K: Entity, T> IndexMut<K> for Arena<K, T> {
    fn index_mut(&mut self, id: K) -> &mut T {
        &mut self.items[id.index()]
    }
}

/// Facts about the entries of an arena, kept beside it; entries not yet written read as the default.
#[derive(Clone, Debug)]
pub struct SideTable<K, T> {
    items: Vec<T>,
    default: T,
    key: PhantomData<K>,
}

impl<K: Entity, T: Clone> SideTable<K, T> {
    pub fn new(default: T) -> Self {
        Self { items: Vec::new(), default, key: PhantomData }
    }

    pub fn set(&mut self, id: K, value: T) {
        *self.get_mut(id) = value;
    }

    pub fn get_mut(&mut self, id: K) -> &mut T {
        if self.items.len() <= id.index() {
            self.items.resize(id.index() + 1, self.default.clone());
        }
        &mut self.items[id.index()]
    }
}

impl<K: Entity, T> Index<K> for SideTable<K, T> {
    type Output = T;
    fn index(&self, id: K) -> &T {
        self.items.get(id.index()).unwrap_or(&self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    entity!(struct Id, "i");

    #[test]
    fn arena_indexes_by_its_own_ids() {
        let mut arena: Arena<Id, &str> = Arena::new();
        let (a, b) = (arena.push("a"), arena.push("b"));
        assert_eq!((arena[a], arena[b]), ("a", "b"));
        assert_eq!(arena.ids().collect::<Vec<_>>(), vec![a, b]);
        assert_eq!(format!("{a} {b:?}"), "i0 i1");
    }

    #[test]
    fn side_table_reads_default_until_written() {
        let mut table: SideTable<Id, u8> = SideTable::new(7);
        table.set(Id::from_index(2), 9);
        assert_eq!(
            (table[Id::from_index(0)], table[Id::from_index(2)], table[Id::from_index(50)]),
            (7, 9, 7)
        );
    }
}
