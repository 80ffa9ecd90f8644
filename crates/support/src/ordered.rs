//! A map that iterates in the order of insertion, so that nothing that is printed or hashed
//! depends on where a hash function happened to put a key.

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct OrderedMap<K, V> {
    entries: Vec<(K, V)>,
    places: BTreeMap<K, usize>,
}

impl<K: Ord + Clone, V> OrderedMap<K, V> {
    pub fn new() -> Self {
        Self { entries: Vec::new(), places: BTreeMap::new() }
    }

    /// Replaces the value of a key that is there (keeping its place) and gives back the old one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(&place) = self.places.get(&key) {
            return Some(std::mem::replace(&mut self.entries[place].1, value));
        }
        self.places.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        None
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.places.get(key).map(|&place| &self.entries[place].1)
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.places.get(key).map(|&place| &mut self.entries[place].1)
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        self.places.contains_key(key)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.entries.iter().map(|(k, v)| (k, v))
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.entries.iter().map(|(k, _)| k)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.entries.iter().map(|(_, v)| v)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K: Ord + Clone, V> Default for OrderedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone, V> FromIterator<(K, V)> for OrderedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(items: I) -> Self {
        let mut map = Self::new();
        for (key, value) in items {
            map.insert(key, value);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iteration_follows_insertion_and_replacement_keeps_the_place() {
        let mut map = OrderedMap::new();
        map.insert("z", 1);
        map.insert("a", 2);
        assert_eq!(map.insert("z", 3), Some(1));
        assert_eq!(map.iter().collect::<Vec<_>>(), vec![(&"z", &3), (&"a", &2)]);
        assert_eq!(map.get("a"), Some(&2));
    }
}
