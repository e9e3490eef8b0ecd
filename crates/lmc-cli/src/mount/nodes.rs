//! The numbers by which the kernel knows what is at the paths of a tree.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::tree::Attributes;

/// The number of the root.
pub(super) const ROOT: u64 = 1;

/// What the kernel knows. Another version of a file has another number, so that the kernel keeps no bytes of the one before.
pub(super) struct Nodes {
    nodes: HashMap<u64, Node>,
    numbers: HashMap<(PathBuf, u64), u64>,
    next: u64,
}

struct Node {
    path: PathBuf,
    attributes: Attributes,
    /// Lookups that the kernel has not forgotten.
    lookups: u64,
}

impl Nodes {
    pub(super) fn new(root: Attributes) -> Self {
        let node = Node { path: PathBuf::new(), attributes: root, lookups: 1 };
        Self { nodes: HashMap::from([(ROOT, node)]), numbers: HashMap::new(), next: ROOT + 1 }
    }

    /// The path of a node, and its attributes at the last lookup.
    pub(super) fn get(&self, number: u64) -> Option<(&Path, &Attributes)> {
        self.nodes.get(&number).map(|node| (&*node.path, &node.attributes))
    }

    /// Counts a lookup of a path, and returns its number.
    pub(super) fn looked_up(&mut self, path: PathBuf, attributes: Attributes) -> u64 {
        let number = *self.numbers.entry((path.clone(), attributes.version)).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        let node = self.nodes.entry(number).or_insert(Node { path, attributes, lookups: 0 });
        node.attributes = attributes;
        node.lookups += 1;
        number
    }

    /// The kernel forgets lookups of a node.
    pub(super) fn forget(&mut self, number: u64, lookups: u64) {
        let Some(node) = self.nodes.get_mut(&number).filter(|_| number != ROOT) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0
            && let Some(node) = self.nodes.remove(&number)
        {
            self.numbers.remove(&(node.path, node.attributes.version));
        }
    }
}

#[cfg(test)]
mod tests {
    use fuser::FileType;

    use super::*;

    #[test]
    fn numbers_are_of_versions_until_they_are_forgotten() {
        let file = |version| Attributes::made(FileType::RegularFile, 7, 0, version);
        let mut nodes = Nodes::new(Attributes::made(FileType::Directory, 0, 0, 0));
        let first = nodes.looked_up("a".into(), file(1));
        assert_eq!(nodes.looked_up("a".into(), file(1)), first);
        let second = nodes.looked_up("a".into(), file(2));
        assert_ne!(first, second);
        nodes.forget(first, 1);
        assert_eq!(nodes.get(first).unwrap().0, Path::new("a"));
        nodes.forget(first, 1);
        assert!(nodes.get(first).is_none() && nodes.get(second).is_some());
        assert!(nodes.looked_up("a".into(), file(1)) > second);
        nodes.forget(ROOT, 1);
        assert!(nodes.get(ROOT).is_some());
        assert_eq!((nodes.nodes.len(), nodes.numbers.len()), (3, 2));
    }
}
