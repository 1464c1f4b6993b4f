//! Delegates methods of test storages to the file system.

/// Generates methods of `rockmill_storage::Storage` by name, which call `LocalStorage`.
macro_rules! as_local_storage {
    (@ open) => {
        fn open(
            &self,
            path: &std::path::Path,
        ) -> std::io::Result<Box<dyn rockmill_storage::ReadableFile>> {
            LocalStorage.open(path)
        }
    };
    (@ folder_id) => {
        fn folder_id(
            &self,
            path: &std::path::Path,
        ) -> std::io::Result<rockmill_storage::FolderId> {
            LocalStorage.folder_id(path)
        }
    };
    (@ mode) => {
        fn mode(&self, path: &std::path::Path) -> std::io::Result<u32> {
            LocalStorage.mode(path)
        }
    };
    (@ is_own_folder) => {
        fn is_own_folder(&self, path: &std::path::Path) -> std::io::Result<bool> {
            LocalStorage.is_own_folder(path)
        }
    };
    (@ list) => {
        fn list(&self, path: &std::path::Path) -> std::io::Result<Vec<String>> {
            LocalStorage.list(path)
        }
    };
    (@ rename) => { as_local_storage!(@@ rename); };
    (@ link_or_copy) => { as_local_storage!(@@ link_or_copy); };
    (@@ $two_paths:ident) => {
        fn $two_paths(&self, from: &std::path::Path, to: &std::path::Path) -> std::io::Result<()> {
            LocalStorage.$two_paths(from, to)
        }
    };
    // All methods that neither list nor read nor write.
    (@ others) => {
        as_local_storage!(
            create_dir_all,
            remove_dir_all,
            remove_empty_dir,
            remove_file,
            folder_id,
            mode,
            is_own_folder,
            rename,
            sync_dir,
            link_or_copy
        );
    };
    (@ $one_path:ident) => {
        fn $one_path(&self, path: &std::path::Path) -> std::io::Result<()> {
            LocalStorage.$one_path(path)
        }
    };
    ($($method:ident),+) => { $( as_local_storage!(@ $method); )+ };
}

pub(crate) use as_local_storage;
